"""Actors, links between them, and a virtual world to test both in.

The package knows nothing of training. Read its rooms in this order: `envelope.py` (what travels),
`codec` (how it looks on a wire), `actors` (who handles it), `links` (sessions, and how a lost one
comes back), `websocket` (sessions between hosts), `simulation` (the same, under a clock that jumps
and a network that misbehaves to order).
"""
