"""What a run and a host are told, and what follows from that alone.

Where to find what:

========================================  ==================
what all members of a run agree on        `run.py`
what one host is told                     `host.py`
options that commands share               `groups.py`
settings, task and layout as they travel  `run_spec.py`
the inner learning rate by the clock      `learning_rate.py`
how large messages may be                 `wire_limits.py`
hosts, ports, URLs                        `addresses.py`
amounts as people read them               `quantities.py`
========================================  ==================
"""
