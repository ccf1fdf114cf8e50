"""Fragments of a model: how they are cut, and where each of their tensors lies.

- `fragments.py`: Which tensors form which fragment
- `layout_file.py`: What a model's trained tensors are
- `leaves.py`: Leaf, piece, fragment, unit, layout
"""
