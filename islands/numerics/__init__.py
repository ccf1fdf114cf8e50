"""Arithmetic as pure functions: gradients, weights, merge, outer step, adoption, wire precision.

A fragment is one flat float32 array here; which ranges of it are merged as one tensor is said by
its `Unit`s (`islands.layout.leaves`). Nothing in this package knows of loops, links or clocks.
"""
