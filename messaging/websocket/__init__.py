"""Links over websockets, between processes and hosts.

Where to find what:

======================================  ==========================================
the network                             `network.py`
a session                               `link.py`
dialling                                `dial.py`
listening, admission                    `acceptor.py`, `door.py`
connection limits, eviction             `visitors.py`
bytes of a request, whole messages      `threshold.py`
fair reading among sessions             `read_scheduler.py`
secrets, TLS                            `security.py`
bulk sockets, their pace, their frames  `bulk.py`, `congestion_window.py`, `bulk_protocol.py`
one open websocket                      `wire.py`
settings                                `settings.py`
======================================  ==========================================
"""
