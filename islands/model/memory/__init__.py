"""The room `model/memory`."""
