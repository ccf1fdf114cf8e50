"""Files of a run that survive crashes, full disks and runs of weeks.

- `disk.py`: Named files that are durable once they are synchronised
- `folder_lock.py`: Private folders, each locked by one process
- `growing_files.py`: Files that are rotated at a limit, and written without waiting for a disk
- `plain_files.py`: Regular files of a folder that somebody else may have made
- `slots.py`: Records in two alternating slots
- `tape_writing.py`: Writers of tapes, in memory or to a file, with one JSON object per line
- `whole_files.py`: Files that are replaced atomically, and sealed by a digest of their content
"""
