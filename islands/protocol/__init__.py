"""The protocol: every rule of a run as a decision, by place pure.

It needs `msgspec` and nothing else.
"""
