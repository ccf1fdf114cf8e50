"""The supervisor: owner of membership. It admits, watches heartbeats, evicts, restarts.

=====================================  ===============
when somebody is suspect or evicted    `liveness.py`
how often a process is started again   `restarts.py`
all decisions together                 `state.py`
=====================================  ===============
"""
