"""How a model is cut into fragments, and how these leave and enter the device.

Where to find what:

===========================================  ====================
leaves, pieces, fragments, units: the words  `leaves.py`
which tensors form which fragment            `fragments.py`
on which devices a learner computes          `mesh.py`
gather, overwrite, shift on the device       `device_transfer.py`
===========================================  ====================
"""
