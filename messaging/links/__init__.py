"""Sessions between actors, independent of the transport.

Where to find what:

===========================================  ==============================
what a link is; those not yet accepted       `link.py`
keeping a session alive: effects, decisions  `dialer.py`, `link_state.py`
links inside a process, and together with    `memory_link.py`, `channel.py`
another network
===========================================  ==============================
"""
