"""The protocol: every rule of a run as a pure decision.

It needs `msgspec` and nothing else.
"""
