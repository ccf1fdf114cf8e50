"""The learner's state and its rules, without a loop."""
