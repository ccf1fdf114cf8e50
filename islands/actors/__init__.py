"""What the actors of all roles share.

Where to find what:

==========================================  ======================
where they live, how they send and record   `role_actor.py`
worker, launcher: how they reach the world  `ports.py`
admissions, heartbeats, fencing (all roles) `membership.py`
its link, for who is no learner             `membership_client.py`
admissions that a syncer can check alone    `credentials.py`
links that others open                      `acceptor.py`
numbers of starts that fence                `epochs.py`
==========================================  ======================
"""
