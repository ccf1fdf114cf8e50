"""Models that the tasks train: a small decoder in Flax NNX."""
