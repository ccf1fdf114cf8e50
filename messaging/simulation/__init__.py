"""A virtual world in which actors and links are tested.

Where to find what:

==================================  =================
a network with seeded faults        `network.py`
an event loop on a virtual clock    `virtual_time.py`
==================================  =================
"""
