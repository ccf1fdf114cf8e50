"""Arithmetic as pure functions: gradients, weights, merge, outer step, adoption, wire precision.

A fragment is one flat float32 array here; its `Unit`s (`islands.layout.leaves`) say which ranges
are merged as one tensor. Nothing in this package depends on event loops, links or clocks.

- `block_codecs.py`: Block codecs
- `codecs.py`: The registry of codecs: contributions as bytes on the wire, and back
- `codec_kernel.py`: The compiled loops of the codecs
- `contributions.py`: A learner's contribution: outer gradient, weight and adoption
- `error_feedback.py`: Error feedback
- `gossip.py`: Gossip steps
- `increment.py`: Updates as quantised increments
- `merge.py`: The merge combines contributions into one direction, and applies it as one outer step
- `merge_kernel.py`: The compiled loops of the merge: measure, combine, step
- `norms.py`: Measure the norms of a contribution and whether it is finite, once, when it arrives
- `optax_chain.py`: Any optax chain as an outer optimizer, or one by its name
- `outer.py`: Outer optimizers
- `top_k.py`: Top-k
- `types.py`: Shapes and dtypes of this package, as jaxtyping annotations
"""
