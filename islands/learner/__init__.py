"""The learner acts: it steps on its own clock, and performs what `protocol/learner` decides."""
