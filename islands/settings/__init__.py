"""Settings of a host, and what follows from the settings of a run alone.

- `commands.py`: Options of the commands that are no process of a run
- `groups.py`: Groups of options that commands share
- `host.py`: Options of each process
- `quantities.py`: Amounts as people read them
- `run_spec.py`: Settings, task and layout of a run, serialized
- `wire_limits.py`: Size limits of messages
"""
