"""Islands placed on engines: Slurm, Ray, Kubernetes and SkyPilot, from one file and one hub.

Where to find what:

=========================================  =========================
the port of an engine, its jobs, errors    `engine.py`
what an island needs, the table `islands`  `needs.py`
what follows from what engines say         `placing.py`
asking engines off the loop                `launcher.py`
a hub whose islands are placed             `hub.py`
islands as batch jobs of Slurm             `slurm.py`
Ray: islands are actors                    `ray.py`
the process that talks to Ray              `ray_driver.py`
what follows from what is known of actors  `ray_jobs.py`
the actor, which runs an island's command  `ray_actor.py`
islands as JobSets of Kubernetes           `kubernetes.py`
what Kubernetes is given                   `kubernetes_manifests.py`
what Kubernetes says of its JobSets        `kubernetes_jobs.py`
SkyPilot: islands are managed jobs         `skypilot.py`
=========================================  =========================
"""
