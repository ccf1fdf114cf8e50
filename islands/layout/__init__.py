"""How a model is cut into fragments, and how fragments are copied from and to the device.

Where to find what:

===========================================  ====================================
leaf, piece, fragment, unit, layout          `leaves.py`
which tensors form which fragment            `fragments.py`, named in `patterns.py`
on which devices a learner computes          `mesh.py`
where leaves and flat values are             `placement.py`
what each process has of a flat value        `ranges.py`
leaves of a user's that cannot be handled    `leaf_checks.py`
rows of leaves that are cut over a mesh      `rectangles.py`
gather, overwrite, shift on the device       `device_transfer.py`
===========================================  ====================================
"""
