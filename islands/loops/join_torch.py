"""Joining a run from a training loop of PyTorch."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from islands.layout.leaves import Layout
from islands.layout.loop_layout import SHARDS
from islands.loops.join import enter, membership
from islands.loops.joined_run import JoinedRun
from islands.loops.layouts import layout_of
from islands.loops.torch_parameters import TorchParameters, check_alone, holds, trained_of
from islands.protocol.errors import TaskError
from islands.protocol.settings.run import RunSettings
from islands.run.hosting.process_runtime import say as say_on_terminal
from islands.settings.groups import ConnectOptions


def join(  # noqa: PLR0913  each is a choice of its own
    address: str | Sequence[str],
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    tokens_per_step: int,
    name: str | None = None,
    token_file: Path | str | None = None,
    connecting: ConnectOptions | None = None,
    rename: Mapping[str, str] | None = None,
    transposed: Collection[str] = (),
    records: int = 0,
    shards: int = SHARDS,
    folder: Path | str | None = None,
    say: Callable[[str], object] = say_on_terminal,
) -> JoinedRun[torch.nn.Module]:
    """Join a run with a PyTorch module, whose parameters are changed in place from now on.

    The loop is one process, whose tensors are whole: replicas and shards of `torch.distributed` are
    refused. Running statistics, as of BatchNorm, are not averaged.

    Args:
        address: host:port of the hub, or several that are tried in turn.
        module: the module; its parameters that require a gradient are trained and exchanged.
        optimizer: the optimizer that steps them, or Accelerate's wrapper of it. A boundary then
            follows each `step()` by itself, and the loop has nothing to do but to end when the run
            is over. Its state is given to peers, and taken from one where this learner is started
            again or joins late. None: the loop calls `JoinedRun.boundary` before each step.
        tokens_per_step: see `islands.join`, as are the arguments that follow.
        rename: path in the run by name in the module (joined by `/`), where both differ.
        transposed: names of the matrices that the run holds transposed: a `Linear` of PyTorch holds
            [out, in], and layers of JAX hold [in, out].

    Returns:
        The run.

    Raises:
        IslandsError: see `islands.join`.
    """
    stepping = stepping_of(module, optimizer)
    joined: list[TorchParameters] = []

    def make(layout: Layout, settings: RunSettings) -> TorchParameters:
        del settings
        parameters = TorchParameters(
            module, layout, rename=rename, transposed=transposed, optimizer=stepping
        )
        joined.append(parameters)
        return parameters

    who = membership(address, name, token_file, connecting, folder, say)
    leased: dict[str, Any] = {"records": records, "shards": shards}
    layout = partial(layout_of, module, rename=rename, transposed=transposed, **leased)
    run = enter(who, tokens_per_step, make, layout=layout)
    for sentence in filter(None, (joined[0].untold, local_buffers(module))):
        say(f"{run.name}: {sentence}")
    try:
        follow(run, joined[0], stepping)
    except BaseException:  # such as a key that interrupts it
        run.leave("it did not begin")
        raise
    return run


def stepping_of(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> torch.optim.Optimizer | None:
    """Check what is to join; return the optimizer itself, if there is one."""
    check_alone()
    trained = trained_of(module)
    if optimizer is None:
        return None
    steps = unwrapped(optimizer)
    if not holds(steps, trained.values()):
        raise TaskError(
            f"the {type(steps).__name__} holds none of the module's parameters that are "
            "trained: make it after the module was moved and loaded"
        )
    return steps


def follow(
    run: JoinedRun[torch.nn.Module],
    parameters: TorchParameters,
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Have a boundary follow each step of an optimizer; with none, only hear of all their steps."""
    if optimizer is None:
        parameters.watch_optimizers()
        return
    run.boundary(run.params)

    def after_step(stepped: torch.optim.Optimizer, *_: object) -> None:
        parameters.optimizer_stepped(stepped)
        try:
            run.boundary(run.params)
        except BaseException:  # the loop may go on without the run
            handle.remove()
            raise

    handle = optimizer.register_step_post_hook(after_step)
    run.at_its_end(handle.remove)


def unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer that steps, of a wrapper without hooks that has it (Accelerate)."""
    inner = getattr(optimizer, "optimizer", None)
    if inner is None or hasattr(optimizer, "_optimizer_step_post_hooks"):
        return optimizer
    return unwrapped(inner)


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
