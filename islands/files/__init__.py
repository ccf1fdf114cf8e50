"""Files of a run that survive crashes, full disks and runs of weeks.

Where to find what:

==============================================  ================
private folder, locked by one process           `folder_lock.py`
file that is replaced atomically                `atomic_write.py`
small file with a digest of its content         `seals.py`
named files that are durable once synchronised  `disk.py`
records in two alternating slots                `slots.py`
growing files, rotated at a limit               `rotation.py`
writing without waiting for a disk              `spool.py`
==============================================  ================

- `tape_writing.py`: Writers of tapes, in memory or to a file, with one JSON object per line
"""
