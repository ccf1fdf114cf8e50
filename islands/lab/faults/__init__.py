"""Faults injected into a run on purpose, and a judgement of their effects: `islands chaos`.

===================  ============================================================================
`fault.py`           the vocabulary: kinds of faults, a fault, a strike; the world's and this room's
`schedule.py`        which fault strikes whom and when; pure, from a scenario and its seed
`real.py`            plays a scenario on real processes
`strikes.py`         how each kind of fault is done to processes, links and hosts: a table
`fleet.py`           starts the hub, finds the processes, signals them, starts the hub again
`__main__.py`        the hub of a run whose processes can be struck: `python -m islands.lab.faults`
`victim.py`          a process that holds its GIL, blocks its loop or crashes when it is ordered to
`paths.py`           the links of learners, through proxies (`proxy.py`)
`stream_faults.py`   what happens to the bytes of a connection on their way
`evidence.py`        one history of the tapes of all processes
`bare_loop.py`       a loop that only sleeps, beside the run: the machine's own stalls
`peak_memory.py`     the peak of a process's memory
`gaps.py`            gaps between steps, and the machine's part in them; pure
`verdict.py`         measurements of each fault, and which promises were broken; pure
`report.py`          the figures of a verdict's table, as texts
===================  ============================================================================

Processes of a run that `islands run` starts read no orders to fail.
"""
