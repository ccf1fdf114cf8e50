"""Faults injected into a run on purpose, and a judgement of their effects: `islands lab chaos`.

Processes of a run that `islands run` starts read no orders to fail.
"""
