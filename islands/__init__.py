"""Islands: Decoupled DiLoCo training across islands of compute that fail."""
