"""Checkpoints of a run: when they are taken, where they lie, and how a run goes back to one."""
