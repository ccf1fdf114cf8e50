"""Islands placed on engines: Slurm, Ray, Kubernetes and SkyPilot, from one file and one hub.

Where to find what:

=========================================  =================
the port of an engine, its jobs, errors    `engine.py`
what an island needs, the table `islands`  `needs.py`
=========================================  =================
"""
