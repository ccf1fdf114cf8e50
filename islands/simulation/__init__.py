"""The production actors on a virtual clock: simulated network, disks, hosts and faults.

==========================  ============
the machines and processes  `world.py`
a disk that forgets         `disk.py`
faults drawn from a seed    `faults.py`
one scenario and its judge  `trial.py`
==========================  ============

``python -m islands.simulation SEED`` plays the scenario of one seed and prints the verdict.
"""
