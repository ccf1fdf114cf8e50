"""Simulated fleets: what failing chips, waiting, narrow links and change leave of their time.

The production actors run on a virtual clock; formulas and models without actors stand beside. Every
experiment has the same parts (`experiment.py`), and is a command of `islands simulate`:

===============================================  =======================
one fleet run by the actors, and its figures     `fleet.py`
when the chips of a learner step                 `chips.py`
chips that fail (`goodput`)                      `goodput.py`
learners of unlike speed (`uneven`)              `uneven.py`
regions with narrow links (`regions`)            `regions.py`
the link that a run needs (`bandwidth`)          `bandwidth.py`
the same in closed form, and in lock-step        `formulas.py`
compute that comes and goes (`scavenge`)         `scavenging.py`
one run that grows and shrinks (`grow`)          `growth.py`
lines over a quantity                            `plot.py`
===============================================  =======================
"""
