"""The room `run/records`."""
