"""Files of a run that survive crashes, full disks and weeks.

Where to find what:

==============================================  ================
a folder for one process, private               `folder_lock.py`
a file that is replaced whole                   `replacing.py`
a small file that tells whether it is whole     `seals.py`
named files that are durable once synchronised  `disk.py`
records of which a torn write costs the older   `slots.py`
files that grow, turned over at a limit         `rotation.py`
writing without waiting for a disk              `spool.py`
==============================================  ================
"""
