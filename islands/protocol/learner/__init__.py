"""The room `protocol/learner`."""
