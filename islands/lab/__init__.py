"""The room `lab`."""
