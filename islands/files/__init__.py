"""Files of a run that survive crashes, full disks and runs of weeks."""
