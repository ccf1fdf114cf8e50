"""What travels, as bytes.

Where to find what:

=====================================  ==============
envelopes as msgpack                   `frames.py`
what a peer may make us hold           `limits.py`
buffers of numbers, and their digests  `tensors.py`
fast passes over bulk bytes            `checksums.py`
=====================================  ==============
"""
