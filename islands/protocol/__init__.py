"""The room `protocol`."""
