"""An island of several hosts: one member of the run, one program of JAX, one failure unit.

Each host runs a process with the same model and the same steps, over the devices of all hosts. Rank
0 leads: its process has the learner's actor, and decides with the others what each boundary carries
out. A host that is lost or stuck ends the processes of all; they start again as one.
"""
