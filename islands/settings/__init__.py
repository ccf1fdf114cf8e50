"""Settings of a run and of a host, and what follows from them alone.

Where to find what:

============================================  ==================
what is configured on one host                `host.py`
options that commands share                   `groups.py`
settings, task and layout, serialized         `run_spec.py`
size limits of messages                       `wire_limits.py`
nested settings by dotted keys                `nested.py`
============================================  ==================

- `island.py`: Checks of the options that make several hosts one island
- `run_reading.py`: Options of the commands that read the folder of a run
- `text.py`: What `islands tokenize` is told
"""
