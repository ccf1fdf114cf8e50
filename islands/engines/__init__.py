"""Islands placed on engines, such as Slurm, from one file and one hub."""
