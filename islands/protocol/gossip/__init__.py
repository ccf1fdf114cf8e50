"""The room `protocol/gossip`."""
