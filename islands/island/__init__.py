"""An island of several hosts: one member of the run, one program of JAX, one failure unit.

Each host runs a process with the same model and the same steps, over the devices of all hosts. Rank
0 leads: its process has the learner's actor, and decides with the others what each boundary carries
out. A host that is lost or stuck ends the processes of all; they start again as one.

=============================================  ==================
whether a host belongs to the island           `forming.py`
what a boundary carries out on all hosts       `agreement.py`
commands at a boundary, and as messages        `commands.py`
when a host counts as lost or stuck            `health.py`
values cut into shares, and put together       `shares.py`
rank 0's links to the others                   `leader.py`
a follower's link to rank 0                    `follower.py`
a process among the others                     `host.py`
one host's process, from start to end          `host_process.py`
what watches it, and starts it again           `host_watchdog.py`
=============================================  ==================
"""
