"""Islands placed on engines: Slurm, Ray, Kubernetes and SkyPilot, from one file and one hub."""
