"""The room `protocol/observer`."""
