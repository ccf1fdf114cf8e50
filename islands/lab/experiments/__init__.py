"""Simulated fleets: what failing chips, waiting, narrow links and change leave of their time.

The production actors run on a virtual clock; a model without actors stands beside. Both experiments
have the same parts (`side_by_side.py`), and are commands of `islands lab simulate`.
"""
