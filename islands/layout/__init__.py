"""Fragments of a model: how they are cut, and where each of their tensors lies.

- `fragments.py`: Which tensors form which fragment
- `loop_layout.py`: What a loop of a user's own trains
- `leaves.py`: Leaf, piece, fragment, unit, layout
"""
