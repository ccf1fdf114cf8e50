"""What failing chips leave of a fleet's time, with the production actors on a virtual clock.

=====================================  ==================
when the chips of a learner step       `chips.py`
a fleet, and the figures of it         `cells.py`
the same without actors, to compare    `event_model.py`
the actors on those chips              `fleet.py`
fleets side by side                    `runner.py`
the paper's figures                    `paper.py`
table, plots                           `table.py`, `plot.py`
=====================================  ==================
"""
