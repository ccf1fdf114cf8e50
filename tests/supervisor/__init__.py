"""The supervisor's decisions, without a loop."""
