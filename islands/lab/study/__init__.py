"""Studies of quality: which settings train as well as which, at equal tokens, seed by seed.

The production actors run as in `islands.lab.world`, but with the arithmetic of the user's task. A
step takes no longer than it computes; how long it would take on an island is said by the cell.
"""
