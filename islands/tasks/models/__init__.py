"""The decoder that the built-in tasks train."""
