"""Redo a run's merges in float64 from what its syncer recorded.

`arithmetic.py` has the rules of merge and outer step in NumPy float64, written apart from
`islands.numerics`; `replaying.py` reads a record, redoes its run by them, and compares.
"""
