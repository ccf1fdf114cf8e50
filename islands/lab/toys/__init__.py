"""The room `lab/toys`."""
