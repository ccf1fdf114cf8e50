"""Actors: private state, mailboxes, references, tasks with one owner.

Where to find what:

==================================  ============
handlers that run one at a time;    `actor.py`
handle by which others reach one
bounded queue, backpressure         `mailbox.py`
tasks cancelled in a fixed order    `scope.py`
==================================  ============
"""
