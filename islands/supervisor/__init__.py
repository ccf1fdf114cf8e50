"""The supervisor acts: it performs what `protocol/supervisor` decides.

- `actor.py`: The supervisor's actor
- `hooks.py`: Calls into its host
"""
