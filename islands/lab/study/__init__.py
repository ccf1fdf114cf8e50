"""Studies of quality: which settings train as well as which, at equal tokens, seed by seed.

=============================================  =====================
what                                           where
=============================================  =====================
what is compared: cells, sweeps, trials        `cells.py`
data-parallel training as one wide learner     `wide_task.py`
one trial on a virtual clock                   `trial.py`
several trials side by side, results on disk   `runner.py`
intervals, and verdicts that follow from them  `statistics.py`
the table and the plot                         `table.py`
=============================================  =====================

The production actors run as in `islands.lab.world`, but with the arithmetic of the user's task. A
step takes no longer than it computes; how long it would take on an island is said by the cell.
"""
