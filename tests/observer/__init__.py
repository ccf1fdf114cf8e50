"""The observer's decisions, without a loop."""
