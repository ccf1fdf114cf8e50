"""Simulated fleets: what failing chips, waiting, narrow links and change leave of their time.

The production actors run on a virtual clock; a model without actors stands beside. Both experiments
have the same parts (`experiment.py`), and are commands of `islands simulate`:

===============================================  =======================
one fleet run by the actors, and its figures     `fleet.py`
when the chips of a learner step                 `chips.py`
chips that fail (`goodput`)                      `goodput.py`
fleets that a file describes                     `comparison.py`
lines over a quantity                            `plot.py`
===============================================  =======================
"""
