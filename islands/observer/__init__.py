"""The observer: receives every fragment, contributes nothing, evaluates what the syncer publishes.

`state.py` decides, `actor.py` performs.
"""
