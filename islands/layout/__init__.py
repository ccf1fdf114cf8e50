"""How a model is cut into fragments, and how fragments are copied from and to the device.

- `fragments.py`: Which tensors form which fragment
- `layout_file.py`: What a model's trained tensors are
- `leaves.py`: Leaf, piece, fragment, unit, layout
"""
