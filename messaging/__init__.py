"""Actors, links between them, and a virtual world to test both in.

The package knows nothing of training. Read it in this order: `envelope.py` (a message and its
addresses), `codec` (its wire format), `actors` (the handlers of messages), `links` (sessions, and
how a lost one is dialled again), `websocket` (sessions between hosts), `simulation` (the same
sessions under a virtual clock and a network with injected faults).

- `clock.py`: The clocks of the program
- `errors.py`: Every exception of this package, in one tree
- `plain_text.py`: Text that a peer sent, made safe for a terminal and for a line of a log
"""
