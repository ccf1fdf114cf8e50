"""The room `protocol/settings`."""
