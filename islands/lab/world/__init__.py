"""The production actors on a virtual clock: simulated network, disks, hosts and faults.

==========================  ===============================
a run's hosts               `world.py`
processes that can freeze   `processes.py`
a learner's compute, and    `inline_compute.py`,
work off the loop           `inline_worker.py`
a disk that loses writes    `disk.py`
hosts, settings and faults  `scenario.py`, `drawn_settings.py`
drawn from a seed
what each fault does        `deeds.py`
one scenario and its check  `trial.py`
==========================  ===============================

``python -m islands.lab.world SEED`` plays the scenario of one seed and prints the verdict.
"""
