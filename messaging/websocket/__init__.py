"""Links over websockets, between processes and hosts.

Where to find what:

======================================  ==========================================
the network                             `network.py`
a session                               `link.py`
dialling                                `dial.py`
listening, who may come in              `acceptor.py`, `door.py`
who gives way in a crowd                `visitors.py`
whose message is read next              `reading_turns.py`
secrets, TLS                            `security.py`
bulk sockets, their pace, their frames  `bulk.py`, `pacing.py`, `bulk_protocol.py`
one open websocket                      `wire.py`
what can be set                         `settings.py`
======================================  ==========================================
"""
