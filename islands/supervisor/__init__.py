"""The supervisor: owner of membership. It admits, watches heartbeats, evicts, restarts.

=====================================  ================
who is admitted, and who has ended     `membership.py`
who may have a name                    `names.py`
what syncers are told of it            `view.py`
when somebody is suspect or evicted    `eviction.py`
when who stands still is killed        `stalls.py`
which processes are started            `launching.py`
how often one is started again         `restarts.py`
what an operator may ask for           `commands.py`
all decisions together                 `state.py`
calls into its host                    `hooks.py`
=====================================  ================
"""
