"""Faults injected into a run on purpose, and a judgement of what came of it: `islands chaos`.

===================  ============================================================================
`schedule.py`        which fault strikes whom and when; pure, from a scenario and its seed
`simulated.py`       a scenario as `islands.lab.world` plays it, and what it cannot express
`__main__.py`        the hub of a run whose processes can be struck: `python -m islands.lab.faults`
`victim.py`          a process that holds its GIL, blocks its loop or crashes when it is told to
`fleet.py`           starts the hub, finds the processes, signals them, starts the hub again
`paths.py`           the links of learners, through proxies (`proxy.py`, `connection.py`)
`stream_faults.py`   what happens to the bytes of a connection on their way
`namespaces.py`      hosts of their own on one machine, with a router between them; needs root
`strikes.py`         how each kind of fault is done
`real.py`            plays a scenario on real processes
`evidence.py`        one history of the tapes of all processes
`bare_loop.py`       a loop that only sleeps, beside the run: the machine's own stalls
`gaps.py`            gaps between steps, and the machine's part in them; pure
`findings.py`        what each fault came to: gaps, step rates, evictions, times; pure
`verdict.py`         which promises were broken; pure
`report.py`          one page that shows all of it
===================  ============================================================================

Nothing here is part of a run that `islands run` starts: its processes cannot be told to fail.

- `timeline.py`: The timeline of a run with faults
- `watched.py`: What the hub of a chaos run writes down of what it is told
"""
