"""The state of a PyTorch optimizer: read in pieces, replaced by a peer's. JAX is not imported.

Most optimizers make their state in their first step. A step of a copy whose parameters are on the
`meta` device, without values, shows it before, at no cost. Hyperparameters, such as a scheduler's
learning rate, are not part of the state.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import torch
from numpy.typing import NDArray

from islands.loops.own_model import NamedArrays
from islands.model.interfaces import MomentsCopy
from islands.model.moment_plan import MomentLeaf, Part
from islands.protocol.errors import TaskError

HOOKS = "_hooks"
"""Ending of the names of an optimizer's hooks."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor of the state of its `owner`, or a plain number of the type `number`."""

    owner: torch.nn.Parameter
    key: str
    dtype: torch.dtype
    device: torch.device
    number: type | None


@dataclass(frozen=True, slots=True)
class TorchCopy:
    """Tensors on their way to the host; `arrived` is None where they were made there."""

    parts: tuple[torch.Tensor, ...]
    arrived: "torch.cuda.Event | None"

    def buffer(self) -> memoryview:
        """Wait for the bytes and return them; those of a single tensor are not copied."""
        if self.arrived is not None:
            self.arrived.synchronize()
        arrays: list[NDArray[np.uint8]] = [part.view(torch.uint8).numpy() for part in self.parts]
        whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        return whole.data.toreadonly()

    def ready(self) -> bool:
        return self.arrived is None or bool(self.arrived.query())

    def finite(self) -> bool:
        if self.arrived is not None:
            self.arrived.synchronize()
        return all(bool(torch.isfinite(part).all()) for part in self.parts)


class TorchMoments(NamedArrays):
    """The state of an optimizer of parameters that are `known` by the run's paths."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, known: Mapping[str, torch.nn.Parameter]
    ) -> None:
        self._optimizer = optimizer
        self._queues = any(each.device.type == "cuda" for each in known.values())
        paths = {parameter: path for path, parameter in known.items()}
        leaves: dict[str, tuple[MomentLeaf, Slot]] = {}
        here = {
            each
            for group in optimizer.param_groups
            if group.get("capturable") or group.get("fused")
            for each in group["params"]
        }
        for owner, state in state_after_a_step(optimizer).items():
            for key, value in state.items():
                if owner not in paths or value is None:
                    continue
                path = f"{paths[owner]}/{key}"
                slot = _slot(owner, key, value, here=owner in here)
                leaf = MomentLeaf(path, numpy_dtype(slot.dtype), tuple(np.shape(value)))
                leaves[path] = leaf, slot
        order = sorted(leaves)
        self._slots = [leaves[path][1] for path in order]
        super().__init__([leaves[path][0] for path in order])

    def read(self, piece: int) -> MomentsCopy:
        parts = tuple(self._copied(part) for part in self.plan.pieces[piece])
        return TorchCopy(parts, recorded() if self._queues else None)

    def _put(self, leaf: int, values: NDArray[np.generic]) -> None:
        slot = self._slots[leaf]
        state = self._optimizer.state[slot.owner]
        bits = torch.from_numpy(values.reshape(-1).view(np.uint8))
        value = bits.view(slot.dtype).view(values.shape)
        if slot.number is not None:
            state[slot.key] = slot.number(value.item())
        elif isinstance(state.get(slot.key), torch.Tensor):
            state[slot.key].copy_(value)
        else:
            state[slot.key] = value.to(slot.device, copy=True)

    def _copied(self, part: Part) -> torch.Tensor:
        """Dispatch a copy of a part to the host; of a state that is not there yet, zeros."""
        slot, leaf = self._slots[part.leaf], self.plan.leaves[part.leaf]
        found = self._optimizer.state.get(slot.owner, {}).get(slot.key)
        row = leaf.size_bytes // leaf.dtype.itemsize // part.leaf_rows
        first, last = part.row_start * row, (part.row_start + part.rows) * row
        if found is None:
            return torch.zeros(last - first, dtype=slot.dtype)
        value = torch.as_tensor(found, dtype=slot.dtype).detach().reshape(-1)[first:last]
        if not self._queues:  # what is here already would share the memory that a step changes
            return value.clone() if value.device.type == "cpu" else value.cpu()
        host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        return host.copy_(value, non_blocking=True)


def numpy_dtype(dtype: torch.dtype) -> np.dtype[np.generic]:
    try:
        return np.dtype(str(dtype).removeprefix("torch."))
    except TypeError as error:
        raise TaskError(f"the optimizer's state has tensors of {dtype}") from error


def recorded() -> "torch.cuda.Event":
    """Return an event that is over once all that was dispatched until now is done."""
    event = torch.cuda.Event()
    event.record()
    return event


def state_after_a_step(
    optimizer: torch.optim.Optimizer,
) -> dict[torch.nn.Parameter, dict[str, Any]]:
    """Return the state of an optimizer after its first step, with tensors on `meta`."""
    own: dict[torch.Tensor, torch.nn.Parameter] = {}

    def like(parameter: torch.nn.Parameter) -> torch.Tensor:
        made = torch.empty_like(parameter, device="meta").requires_grad_()
        made.grad = torch.empty_like(made) if parameter.requires_grad else None
        own[made] = parameter
        return made

    tried: Any = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if name != "step":  # a scheduler has put its own there
            setattr(tried, name, OrderedDict() if name.endswith(HOOKS) else value)
    tried.state = defaultdict(dict)
    tried.param_groups = [
        {**group, **_plain(group), "params": [like(each) for each in group["params"]]}
        for group in optimizer.param_groups
    ]
    try:
        tried.step()
    except Exception as error:  # an optimizer of the user's may raise anything
        raise TaskError(
            f"what state {type(optimizer).__name__} keeps cannot be told before its first step "
            f"({type(error).__name__}: {error})"
        ) from error
    return {own[made]: state for made, state in tried.state.items()}


def _plain(group: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a group by which a step computes with ordinary operations."""
    return {name: False for name in ("foreach", "fused", "capturable") if name in group}


def _slot(owner: torch.nn.Parameter, key: str, value: object, *, here: bool) -> Slot:
    """Describe a `value` of the tried step; it is on the parameter's device if `here`."""
    if isinstance(value, bool | int | float):
        kind = torch.float64 if isinstance(value, float) else torch.int64
        return Slot(owner, key, kind, torch.device("cpu"), type(value))
    if not isinstance(value, torch.Tensor):
        raise TaskError(
            f"the optimizer's state has {key}, which is a {type(value).__name__} and no tensor"
        )
    device = owner.device if here or value.device.type == "meta" else value.device
    return Slot(owner, key, value.dtype, device, None)
