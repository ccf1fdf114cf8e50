"""How a model is cut into fragments, and how fragments are copied from and to the device.

Where to find what:

===========================================  ====================================
leaf, piece, fragment, unit, layout          `leaves.py`
which tensors form which fragment            `fragments.py`, named in `patterns.py`
===========================================  ====================================

- `layout_file.py`: What a model's trained tensors are
"""
