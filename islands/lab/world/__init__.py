"""The production actors on a virtual clock: simulated network, disks, hosts and faults.

``python -m islands.lab.world SEED`` plays the scenario of one seed and prints the verdict.
"""
