"""The observer receives every fragment, contributes nothing, and evaluates what is published.

`state.py` decides, `actor.py` performs.
"""
