"""A virtual world to test actors and links in.

Where to find what:

==================================  =================
slow, narrow, cut, healed: by seed  `network.py`
a loop whose clock jumps            `virtual_time.py`
==================================  =================
"""
