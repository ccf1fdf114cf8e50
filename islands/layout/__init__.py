"""Fragments of a model: how they are cut, and where each of their tensors lies."""
