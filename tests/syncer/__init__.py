"""The syncer's state and its rules, without a loop."""
