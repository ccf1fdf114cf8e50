"""Refusals of what a loop of PyTorch cannot take part with, each in a sentence.

A learner of PyTorch is one process with plain tensors. Several processes would each exchange their
own replica, which `DistributedDataParallel` assumes to be alike, and a shard is no leaf of the run.
"""

from collections.abc import Collection

import torch

from islands.protocol.errors import SettingsError, TaskError


def check_alone() -> None:
    """Refuse a process that is one of several of `torch.distributed`.

    Raises:
        SettingsError: it is; says what is possible.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    processes = distributed.get_world_size()
    if processes > 1:
        raise SettingsError(
            f"torch.distributed has {processes} processes here, and a learner of PyTorch is one "
            "process: start each as a learner under a name of its own, without "
            "torch.distributed (DDP, FSDP), or join several processes of JAX by islands.join"
        )


def check_tensor(path: str, tensor: torch.Tensor) -> None:
    """Refuse a parameter that cannot be read or written where it is.

    Raises:
        TaskError: names it, what is wrong with it, and how to mend it.
    """
    if torch.nn.parameter.is_lazy(tensor):
        raise TaskError(f"{path} has no shape yet: call the module once before it joins")
    if hasattr(tensor, "device_mesh"):  # a DTensor, by what it has: its import takes a second
        raise TaskError(
            f"{path} is a DTensor, which is cut over a mesh (FSDP2, tensor parallelism), and a "
            "learner of PyTorch exchanges whole tensors: join before it is cut, on one device, or "
            "join a sharded model of JAX by islands.join"
        )
    if tensor.is_inference():
        raise TaskError(
            f"{path} was made in torch.inference_mode, so no step can change it as one of training "
            "does: make or load the module outside of it"
        )
    if tensor.is_meta:
        raise TaskError(f"{path} is on the device meta and has no values: load the module first")


def unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer that steps, of a wrapper without hooks that has it (Accelerate)."""
    inner = getattr(optimizer, "optimizer", None)
    if inner is None or hasattr(optimizer, "_optimizer_step_post_hooks"):
        return optimizer
    return unwrapped(inner)


def check_steps(optimizer: torch.optim.Optimizer, trained: Collection[torch.Tensor]) -> None:
    """Refuse an optimizer that steps nothing of what is trained.

    Raises:
        TaskError: it holds other tensors, such as those that were there before a replacement.
    """
    if not holds(optimizer, trained):
        raise TaskError(
            f"the {type(optimizer).__name__} holds none of the module's parameters that are "
            "trained: make it after the module was moved and loaded"
        )


def holds(optimizer: torch.optim.Optimizer, trained: Collection[torch.Tensor]) -> bool:
    """Whether an optimizer steps one of these tensors at least."""
    known = set(map(id, trained))
    return any(
        id(tensor) in known for group in optimizer.param_groups for tensor in group["params"]
    )


def local_buffers(module: torch.nn.Module) -> str:
    """Return what of a module is not averaged although training changes it; "" if nothing is."""
    named = [
        name.replace(".", "/")
        for name, part in module.named_modules()
        if getattr(part, "track_running_stats", False)
        and getattr(part, "running_mean", None) is not None
    ]
    if not named:
        return ""
    rest = f" and {len(named) - 1} more" if len(named) > 1 else ""
    return (
        f"the running statistics of {named[0]}{rest} are buffers, so they are not averaged: each "
        "learner keeps its own, and the run's result has none"
    )
