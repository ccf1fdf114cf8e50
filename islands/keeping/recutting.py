"""A checkpoint under other settings: other fragments, another outer optimizer, other rates.

Values go by their tensors from the fragments of before to those of now, and so do arrays of the
outer optimizer that have a value's shape (its momentum). Its other arrays, such as counts, are
alike in all fragments. Another kind of outer optimizer begins anew.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from islands.keeping.finding import Restored
from islands.layout.leaves import Layout
from islands.numerics.outer import outer_optimizer
from islands.protocol.errors import UserError
from islands.protocol.identities import Version
from islands.protocol.syncer.journalling import Durable
from islands.protocol.syncer.versions import Published
from islands.settings.run_spec import RunPlan, RunSpec
from islands.syncer.journal import Recovered
from messaging.codec.tensors import as_buffer, digest

Arrays = dict[str, NDArray[np.generic]]

TASK = ("task", "task_settings")
OF_THE_MODEL = ("run", "merge_moments", "seed")
"""What makes a run another one: its values would mean something else."""


def why_another(spec: RunSpec, earlier: RunSpec) -> str | None:
    """Return the setting, with both values, that a resumed run cannot change; None if none is."""
    pairs = {name: (getattr(earlier, name), getattr(spec, name)) for name in TASK}
    for name in OF_THE_MODEL:
        key = f"run.{name}"
        pairs[key] = getattr(earlier.settings, name), getattr(spec.settings, name)
    for name, (before, now) in pairs.items():
        if before != now:
            return f"{name} = {before}, not {now}"
    return None


def recut(restored: Restored, spec: RunSpec, plan: RunPlan) -> Restored:
    """Return a checkpoint as one of a run with these settings and this plan."""
    before, now, recovered = restored.plan.layout, plan.layout, restored.recovered
    outer, earlier = spec.settings.outer, restored.spec.settings.outer
    if before == now and outer.kind == earlier.kind:
        return replace(restored, spec=spec, plan=plan)
    if before.leaves != now.leaves:
        leaf = next((one for one in now.leaves if one not in before.leaves), None)
        named = f": it has {leaf.path}, {leaf.dtype}{list(leaf.shape)}" if leaf else ""
        raise UserError(f"the model is another one now than in the checkpoint{named}")
    fragments = list(recovered.fragments)
    if before.fragments != now.fragments:
        fragments = _moved(fragments, before, now)
    if outer.kind != earlier.kind:
        optimizer = outer_optimizer(outer)
        fragments = [
            {"value": each["value"], **optimizer.init(np.asarray(each["value"], np.float32))}
            for each in fragments
        ]
    durable = _books(recovered.durable, fragments)
    durable.fingerprint = now.fingerprint
    return replace(restored, spec=spec, plan=plan, recovered=Recovered(durable, tuple(fragments)))


def _moved(fragments: Sequence[Arrays], before: Layout, now: Layout) -> list[Arrays]:
    found: list[Arrays] = [{} for _ in now.fragments]
    for name in fragments[0]:
        held = [each[name] for each in fragments]
        moved: Sequence[NDArray[np.generic]] = [held[i % len(held)] for i in range(len(found))]
        if all(each[name].shape == each["value"].shape for each in fragments):
            values = [np.asarray(each, np.float32) for each in held]
            moved = now.flattened(array for _, array in before.assembled(values))
        for arrays, array in zip(found, moved, strict=True):
            arrays[name] = array
    return found


def _books(durable: Durable, fragments: Sequence[Arrays]) -> Durable:
    """Close all accounts, and give each fragment of now the totals of one of before.

    Every token has a fate in each fragment, so the totals of any fragment balance.
    """
    durable.close_books()
    newest = [each for each in durable.published if each is not None]
    version = max(each.version for each in newest)
    totals = durable.ledger.totals
    durable.ledger.totals = [copy(totals[index % len(totals)]) for index in range(len(fragments))]
    durable.published = [
        Published(
            Version(version.epoch, version.number),
            digest(as_buffer(np.ascontiguousarray(each["value"], np.float32))),
            durable.round,
            durable.ledger.totals[index].settled,
        )
        for index, each in enumerate(fragments)
    ]
    return durable
