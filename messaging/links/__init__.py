"""Sessions between actors, independent of the transport.

Where to find what:

===========================================  ==============================
what a link is                               `link.py`
keeping a session alive: effects, decisions  `dialer.py`, `link_state.py`
queue of sessions not yet accepted           `backlog.py`
links inside a process                       `memory_link.py`, `channel.py`
two networks as one                          `composite_network.py`
===========================================  ==============================
"""
