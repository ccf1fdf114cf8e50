"""Arithmetic as pure functions: gradients, weights, merge, outer step, adoption, wire precision.

A fragment is one flat float32 array here; its `Unit`s (`islands.layout.leaves`) say which ranges
are merged as one tensor. Nothing in this package depends on event loops, links or clocks.
"""
