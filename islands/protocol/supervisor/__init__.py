"""The room `protocol/supervisor`."""
