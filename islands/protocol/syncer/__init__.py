"""The room `protocol/syncer`."""
