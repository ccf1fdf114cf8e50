"""How much memory a run takes: of a host, of a device, of each process.

- `host_memory.py`: Measure the memory that this host has for processes
- `increment_memory.py`: The memory that updates by increments take beside what a run of whole …
- `memory_faults.py`: Memory that a host or a device does not have, told in one sentence with what …
- `process_memory.py`: Estimate how much of a host's memory each process of a run takes at its peak
"""
