"""An island of several hosts: one member of the run, one program of JAX, one failure unit.

Each host runs a process with the same model and the same steps, over the devices of all hosts. Rank
0 leads: its process has the learner's actor, and decides with the others what each boundary carries
out. A host that is lost or stuck ends the processes of all; they start again as one.

=============================================  ==================
whether a host belongs to the island           `forming.py`
what a boundary carries out on all hosts       `agreement.py`
when a host counts as lost or stuck            `health.py`
commands as messages                           `command_wire.py`
shares of values, cut and put together         `shares.py`
who sends and is sent which share              `leader_shares.py`
a follower's session with the syncer           `follower_shares.py`
commands as the thread that steps takes them   `agreed_commands.py`
rank 0's links to the others                   `leader.py`
a follower's link to rank 0                    `follower.py`
a process among the others                     `host.py`
one host's process, from start to end          `host_process.py`
what watches it, and starts it again           `host_watchdog.py`
=============================================  ==================
"""
