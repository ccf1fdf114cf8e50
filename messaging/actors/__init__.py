"""Actors: private state, mailboxes, references, tasks with one owner.

Where to find what:

==================================  ============
handlers that run one at a time     `actor.py`
what waits, and what if it is full  `mailbox.py`
all that others may hold            `ref.py`
tasks that end in order             `scope.py`
==================================  ============
"""
