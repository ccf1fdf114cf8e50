"""What the actors of all roles share.

Where to find what:

==========================================  ========================
context, sending, tape: the base actor      `role_actor.py`
ports to the world: worker, launcher        `ports.py`
admissions, heartbeats, fencing (all roles)  `membership.py`
copies of the supervisor's membership view  `supervisor_view.py`
a syncer's link to the supervisor           `membership_client.py`
admissions that a syncer can check alone    `credentials.py`
links that others open                      `acceptor.py`
epochs, which fence earlier starts          `epochs.py`
==========================================  ========================
"""
