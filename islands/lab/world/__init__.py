"""The production actors on a virtual clock: simulated network, disks, hosts and faults.

==========================  ===============================
a run's hosts               `world.py`
processes that can freeze   `processes.py`
a disk that loses writes    `disk.py`
faults drawn from a seed    `faults.py`, `host_faults.py`
one scenario and its check  `trial.py`
==========================  ===============================

``python -m islands.lab.world SEED`` plays the scenario of one seed and prints the verdict.

- `drawn_settings.py`: Settings of a run drawn by chance
- `host_deeds.py`: What the faults of `host_faults.py` do to a world, and when
"""
