"""The observer acts: it performs what `protocol/observer` decides.

- `actor.py`: The observer's actor keeps the newest values
"""
