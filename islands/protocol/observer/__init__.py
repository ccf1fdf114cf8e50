"""The observer's rules: it takes what is published, and gives nothing.

- `actions.py`: The actions that an observer's state returns; the actor performs them in order
- `events.py`: The events that an observer's state handles
- `state.py`: The observer's decisions
"""
