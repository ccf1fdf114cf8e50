"""The room `lab/settings`."""
