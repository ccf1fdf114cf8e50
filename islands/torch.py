"""Taking part in a run from a training loop of PyTorch: `islands.torch.join`.

    run = islands.torch.join("10.0.0.1:7070", model, optimizer, tokens_per_step=batch * length)
    while not run.over:
        …the user's own step, with optimizer.step()…

It needs PyTorch, which Islands does not install; JAX is not imported.
"""

from islands.loops.join_torch import join

__all__ = ["join"]
