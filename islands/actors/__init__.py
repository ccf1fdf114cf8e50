"""What the actors of all roles share.

Where to find what:

==========================================  ========================
context, sending, tape: the base actor      `role_actor.py`
ports to the world: worker, launcher        `ports.py`
a syncer's link to the supervisor           `membership_client.py`
links that others open                      `acceptor.py`
epochs, which fence earlier starts          `epochs.py`
==========================================  ========================

- `published_values.py`: The published values that a member is sent
"""
