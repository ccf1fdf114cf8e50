"""Record what a run's syncer merges, and redo it afterwards in float64.

`record.py` has the files and their writer, which a syncer is given as a hook; `reading.py` reads
them; `arithmetic.py` has the rules of merge and outer step in NumPy float64, written apart from
`islands.numerics`; `replaying.py` redoes a run by them and compares.
"""
