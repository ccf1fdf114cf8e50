"""Actors, links between them, and a virtual world to test both in.

The package knows nothing of training. Read it in this order: `envelope.py` (a message and its
addresses), `codec` (its wire format), `actors` (the handlers of messages), `links` (sessions, and
how a lost one is dialled again), `websocket` (sessions between hosts), `simulation` (the same
sessions under a virtual clock and a network with injected faults).
"""
