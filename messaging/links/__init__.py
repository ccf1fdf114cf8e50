"""Sessions between actors, whatever carries them.

Where to find what:

===========================================  ==============================
what a link is                               `link.py`
keeping a session alive: effects, decisions  `dialer.py`, `link_state.py`
sessions nobody has accepted yet             `backlog.py`
links inside a process                       `memory_link.py`, `channel.py`
two networks as one                          `joint_network.py`
===========================================  ==============================
"""
