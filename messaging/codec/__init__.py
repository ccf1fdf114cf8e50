"""The wire format: how envelopes and their payloads become bytes, and are read back.

Where to find what:

=====================================  ==============
envelopes as msgpack                   `frames.py`
limits on what a peer may send         `limits.py`
buffers of numbers, and their digests  `tensors.py`
checksum and mask of bulk bytes        `checksums.py`
=====================================  ==============
"""
