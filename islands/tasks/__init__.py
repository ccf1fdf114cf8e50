"""Tasks: the contract between a model with its data and a run, and those that come with islands."""
