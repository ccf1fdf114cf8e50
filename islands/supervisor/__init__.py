"""The supervisor owns membership: it admits, watches heartbeats, evicts and restarts.

=====================================  ================
admission, heartbeats, ends of members `membership.py`
which joiner gets a contested name     `names.py`
the membership view sent to syncers    `view.py`
suspect, stalled, evicted: when        `eviction.py`
when a stalled process is killed       `stalls.py`
which processes are started, restarted `launching.py`
how often one process is restarted     `restarts.py`
what an operator may ask for           `commands.py`
all decisions together                 `state.py`
calls into its host                    `hooks.py`
=====================================  ================
"""
