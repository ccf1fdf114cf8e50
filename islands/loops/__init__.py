"""Training loops of the users' own take part in a run: `islands.join`.

A hub plans such a run by the layout of its first loop (`islands.layout.loop_layout`). The modules
for loops of PyTorch import no JAX.
"""
