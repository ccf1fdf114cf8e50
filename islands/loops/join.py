"""Joining a run from a training loop of one's own."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from islands.layout.leaves import Layout
from islands.layout.loop_layout import SHARDS, LoopLayout
from islands.learner.boundary import StepData
from islands.learner.stepped_compute import SteppedCompute
from islands.loops.background import Background
from islands.loops.host_background import HostBackground, host_of
from islands.loops.joined_run import JoinedRun
from islands.loops.layouts import PathTest, layout_of
from islands.loops.own_model import Parameters, Tree
from islands.model.memory import memory_told
from islands.protocol.errors import SettingsError
from islands.protocol.identities import SUPERVISOR, Role
from islands.protocol.settings.addresses import hub_urls
from islands.protocol.settings.run import RunSettings
from islands.run.hosting.process_runtime import say as say_on_terminal
from islands.run.learner_process import Membership
from islands.settings.groups import ConnectOptions, at_least, check_name, default_name
from islands.tasks.data.shards import ShardPlan

if TYPE_CHECKING:
    from jaxtyping import PyTree


def join(  # noqa: PLR0913  each is a choice of its own
    address: str | Sequence[str],
    params: "PyTree",
    *,
    tokens_per_step: int,
    name: str | None = None,
    token_file: Path | str | None = None,
    connecting: ConnectOptions | None = None,
    optimizer: "PyTree" = None,
    donate: bool = True,
    rename: Mapping[str, str] | None = None,
    trainable: PathTest = lambda _: True,
    stacked: PathTest = lambda _: False,
    records: int = 0,
    shards: int = SHARDS,
    folder: Path | str | None = None,
    island_address: str | None = None,
    say: Callable[[str], object] = say_on_terminal,
) -> "JoinedRun[PyTree]":
    """Join a run with a tree of JAX arrays that a loop of one's own trains.

    Several processes of one `jax.distributed` program are one learner: all call this, `boundary`
    and `done` at the same places, with the same arguments, and end together (docs/own_loops.md).

    Args:
        address: host:port of the hub, or several that are tried in turn.
        params: the parameters, whose shardings stay as they are. They are consumed: go on with
            `JoinedRun.params`. If the run has no values yet, it begins with these.
        tokens_per_step: how many tokens a step counts as processed, on all of this loop's devices.
        name: name of this learner, unique in the run, which a loop that is started again keeps.
        token_file: file with the run's token, as `connecting` has it.
        connecting: how the hub is reached: token, certificates, patience.
        optimizer: state of the loop's optimizer, for which a peer's is taken over where it has one.
            Hand it in at each boundary, and go on with `JoinedRun.optimizer`.
        donate: whether an adoption may reuse buffers of the parameters; False if they are kept.
        rename: path in the run by path in `params`, where both differ.
        trainable: whether the leaf at a path is trained and exchanged; by default all are.
        stacked: whether it holds all layers along its first axis; the first loop tells the hub.
        records: how many the syncer leases to all loops (`JoinedRun.batches`); 0 = none.
        shards: in how many shards it does; each must have room for a batch.
        folder: folder in which this learner keeps its tape, if it is to keep one.
        island_address: host:port at which process 0 serves the others, if there are several.
        say: receives sentences for people.

    Raises:
        TaskError: the parameters are not those of the run, or cannot be exchanged.
        SettingsError: an argument cannot work.
        UnreachableError: no hub answers in time.
        RefusedError: the hub refuses this learner, or process 0 refuses this process.
        HostLostError: another process of this loop has ended, or did not come in time.
    """
    import jax

    from islands.loops.jax_parameters import JaxParameters, check_leaves

    like: dict[str, Any] = {"rename": rename, "trainable": trainable}
    make = partial(JaxParameters, params, donate=donate, optimizer=optimizer, **like)
    who = membership(address, name, token_file, connecting, folder, say)
    rank, hosts = jax.process_index(), jax.process_count()
    host = host_of(rank, hosts, island_address=island_address, name=name)
    equal = {
        "tokens_per_step": str(tokens_per_step),
        "donate": str(donate),
        "rename": str(sorted((rename or {}).items())),
        "whether an optimizer is given": str(optimizer is not None),
    }
    background = None if host is None else HostBackground(who, host, equal)
    check_leaves(params, trainable)
    layout = partial(layout_of, params, stacked=stacked, records=records, shards=shards, **like)
    return enter(who, tokens_per_step, make, background, layout)


def membership(
    address: str | Sequence[str],
    name: str | None,
    token_file: Path | str | None,
    connecting: ConnectOptions | None,
    folder: Path | str | None,
    say: Callable[[str], object],
) -> Membership:
    options = connecting or ConnectOptions()
    if token_file is not None:
        if options.token_file is not None:
            raise SettingsError("token_file is given twice: beside connecting, and in it")
        options = replace(options, token_file=Path(token_file))
    addresses = (address,) if isinstance(address, str) else tuple(address)
    urls = hub_urls("address", addresses, SUPERVISOR, tls=options.tls)
    if name is not None:
        check_name(name, Role.LEARNER)
    tape = None if folder is None else Path(folder)
    return Membership(urls, name or default_name(), options, tape, say)


def enter(
    who: Membership,
    tokens_per_step: int,
    make: Callable[[Layout, RunSettings], Parameters[Tree]],
    background: Background | None = None,
    layout: Callable[[], LoopLayout] | None = None,
) -> JoinedRun[Tree]:
    """Join a run as soon as its layout is known: the first loop reports its own to the hub.

    `make` makes the parameters' model. By default the learner's actor lives in this process alone.
    """
    try:
        tokens = operator.index(tokens_per_step)
    except TypeError as error:
        raise SettingsError(
            f"tokens_per_step is {tokens_per_step!r}; it must be a whole number"
        ) from error
    at_least("tokens_per_step", tokens, 1)
    background = background or Background(who)
    compute = None
    try:
        begun = background.fetch(layout)
        plan, settings = begun.run.plan, begun.run.spec.settings
        with memory_told(plan.layout):
            parameters = make(plan.layout, settings)
        model, commands = parameters.model, begun.commands
        compute = SteppedCompute(model, settings, who.name, StepData(tokens), commands=commands)
        background.enter(compute)
        records = ShardPlan(plan.records, plan.shards, settings.seed) if plan.records else None
        return JoinedRun(who.name, parameters, compute, background, records)
    except BaseException as error:  # such as a key that interrupts it
        if compute is not None:
            compute.rest()
        background.not_begun(error)
        raise
