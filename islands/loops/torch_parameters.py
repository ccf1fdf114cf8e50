"""The parameters of a PyTorch module as the model that a learner exchanges.

The tensors are changed in place, so the module and its optimizer go on with the objects they hold.
JAX is not imported. A learner of PyTorch is one process with whole tensors: several would each
exchange their own replica, which `DistributedDataParallel` assumes to be alike.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from weakref import finalize, ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim.optimizer import register_optimizer_step_post_hook

from islands.layout.leaves import VALUE_BYTES, Layout, Piece
from islands.learner.boundary import Dispatched
from islands.loops.own_model import NO_METRICS, OwnMoments, check_finite, leaf_indices
from islands.loops.torch_moments import TorchCopy, TorchMoments, recorded
from islands.model.interfaces import host_named
from islands.protocol.errors import InvariantError, SettingsError, TaskError
from islands.protocol.ranges import Ranges
from islands.protocol.settings.choices import SnapshotPrecision

WIRE = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class TorchStep:
    """A step that was dispatched: one number of its result, its loss and its metrics."""

    number: torch.Tensor
    given: torch.Tensor | float | None
    measured: Mapping[str, torch.Tensor | float]
    arrived: "torch.cuda.Event | None"

    def loss(self) -> float | None:
        """Wait until the step is done, and return its loss; nan if its result is no number."""
        if self.arrived is not None:
            self.arrived.synchronize()
        number = float(self.number)
        if not isfinite(number):
            return number
        return None if self.given is None else float(self.given)

    def metrics(self) -> dict[str, float]:
        return {name: float(value) for name, value in self.measured.items()}


def checked(value: object, name: str = "loss") -> torch.Tensor | float:
    """Return a loss, or a metric of this name, without its gradients."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.detach()
    if isinstance(value, float | int):
        return value
    raise TaskError(
        f"the {name} is a {type(value).__name__}; hand in a number or a tensor of one, or nothing"
    )


class TorchModel(OwnMoments):
    """The trained tensors of a module, and the base of each fragment.

    The tensors are in the order of the layout, on one device; a transposed one is a view.
    """

    compiling = False

    def __init__(self, layout: Layout, tensors: Sequence[torch.Tensor]) -> None:
        self.layout = layout
        self._tensors = list(tensors)
        self._device = tensors[0].device
        self._queues = self._device.type == "cuda"  # what is dispatched may not have been done
        held = (tensor for tensor in tensors if tensor.numel())
        self._smallest = min(held, key=lambda tensor: tensor.numel())
        self._lost = [self._nothing_lost(index) for index in range(len(layout.fragments))]
        self._base = [self._read(index) for index in range(len(layout.fragments))]

    @property
    def hardware(self) -> str:
        if self._device.type == "cuda":
            return str(torch.cuda.get_device_name(self._device))
        return host_named() if self._device.type == "cpu" else str(self._device)

    def share(self, fragment: int) -> Ranges:
        return ((0, self.layout.fragments[fragment].size),)

    def shares(self, fragment: int) -> tuple[Ranges, ...]:
        return (self.share(fragment),)

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> TorchCopy:
        difference = (self._base[fragment] - self._read(fragment)).to(WIRE[precision])
        if not self._queues:
            return TorchCopy((difference.cpu(),), None)
        host = torch.empty(difference.shape, dtype=difference.dtype, pin_memory=True)
        host.copy_(difference, non_blocking=True)
        return TorchCopy((host,), recorded())

    def value(self, fragment: int) -> NDArray[np.float32]:
        value: NDArray[np.float32] = self._read(fragment).cpu().numpy()
        return value

    def base_of(self, fragment: int) -> NDArray[np.float32]:
        value: NDArray[np.float32] = self._base[fragment].cpu().numpy().copy()
        return value

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        self._base[fragment] = self._uploaded(fragment, value)
        self._write(fragment, self._base[fragment])

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        new, known = self._uploaded(fragment, value), self._base[fragment]
        if sent is not None:
            known = known - self._uploaded(fragment, sent)
        self._write(fragment, self._read(fragment) + (new - known))
        self._base[fragment] = new

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        new = self._uploaded(fragment, value)
        self._write(fragment, share * self._read(fragment) + (1 - share) * new)
        self._base[fragment] = new

    def mark(self) -> torch.Tensor:
        return self._smallest[(0,) * self._smallest.ndim].clone()

    def queued(self) -> "torch.cuda.Event | None":
        return recorded() if self._queues else None

    def finite(self) -> bool:
        return all(bool(torch.isfinite(tensor).all()) for tensor in self._tensors)

    def _read(self, fragment: int) -> torch.Tensor:
        """Copy a fragment's flat value in float32 into a new tensor, with what rounding took."""
        held = self.layout.fragments[fragment]
        flat = torch.empty(held.size, dtype=torch.float32, device=self._device)
        for piece in held.pieces:
            part = flat[piece.offset : piece.offset + piece.size]
            part.copy_(self._held_by(piece).reshape(-1))
        lost = self._lost[fragment]
        return flat if lost is None else flat.add_(lost)

    def _write(self, fragment: int, flat: torch.Tensor) -> None:
        """Write a fragment's flat value into the tensors, in their own dtypes.

        What rounding takes away is kept as a part of the local value, as in `device_transfer`.
        """
        lost = self._lost[fragment]
        for piece in self.layout.fragments[fragment].pieces:
            part = flat[piece.offset : piece.offset + piece.size]
            held = self._held_by(piece)
            held.copy_(part.view(held.shape))
            if lost is not None:
                of_piece = lost[piece.offset : piece.offset + piece.size]
                of_piece.copy_(part - held.reshape(-1))

    def _nothing_lost(self, fragment: int) -> torch.Tensor | None:
        held = self.layout.fragments[fragment]
        narrow = [self._tensors[piece.leaf].dtype.itemsize < VALUE_BYTES for piece in held.pieces]
        if not any(narrow):
            return None
        return torch.zeros(held.size, dtype=torch.bfloat16, device=self._device)

    def _held_by(self, piece: Piece) -> torch.Tensor:
        tensor = self._tensors[piece.leaf]
        if tensor.is_contiguous():
            return tensor.view(-1)[piece.start : piece.stop]
        return tensor[piece.row_start : piece.row_stop]  # a transposed matrix, which is no stack

    def _uploaded(self, fragment: int, value: NDArray[np.float32]) -> torch.Tensor:
        """Copy a flat value to the device, so that the caller may reuse its buffer."""
        size = self.layout.fragments[fragment].size
        if value.shape != (size,) or value.dtype != np.float32:
            raise InvariantError(f"fragment {fragment} is float32[{size}], not {value.dtype}")
        copied = torch.tensor(value)
        if not self._queues:
            return copied.to(self._device)
        return copied.pin_memory().to(self._device, non_blocking=True)


class TorchParameters:
    """The parameters of a module, which are changed in place; for the arguments see `join_torch`.

    A step was taken if PyTorch counts a change of a tensor (`_version`), or if an optimizer has
    stepped one with a gradient, as fused kernels do uncounted. `untold` says why peers do not
    receive the optimizer's state although there is one; else it is empty.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        layout: Layout,
        *,
        rename: Mapping[str, str] | None = None,
        transposed: Collection[str] = (),
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        named = trained_of(module)
        unknown = sorted(set(transposed) - set(named))
        if unknown:
            raise TaskError(f"transposed names {unknown[0]}, which this module does not train")
        paths = list(named)
        tensors = [
            named[path].detach().T if path in transposed else named[path].detach() for path in paths
        ]
        devices = {str(tensor.device) for tensor in tensors}
        if len(devices) > 1:
            raise TaskError(
                f"the trained tensors lie on {' and '.join(sorted(devices))}; a learner's must all "
                "lie on one device"
            )
        shapes = [tuple(tensor.shape) for tensor in tensors]
        dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
        indices = leaf_indices(layout, paths, shapes, dtypes, rename or {}, lambda _: True)
        self.model = TorchModel(layout, [tensors[index] for index in indices])
        self.untold = ""
        if optimizer is not None:
            to_run = rename or {}
            known = {to_run.get(path, path): parameter for path, parameter in named.items()}
            try:
                self.model.moments = TorchMoments(optimizer, known)
            except TaskError as error:
                self.untold = f"the optimizer's moments are not given to peers: {error}"
        self._module = module
        self._held = [(path, named[path], named[path].data_ptr()) for path in paths]
        self._optimizer_stepped = False
        self._versions = self._counted()
        check_finite(self.model)

    def watch_optimizers(self) -> None:
        """Hear of the steps of all optimizers, for as long as this object is there."""
        myself = ref(self)

        def after_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
            found = myself()
            if found is not None:
                found.optimizer_stepped(optimizer)

        finalize(self, register_optimizer_step_post_hook(after_step).remove)

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer has stepped, if it has changed one of the tensors."""
        graded = [tensor for _, tensor, _ in self._held if tensor.grad is not None]
        self._optimizer_stepped |= holds(optimizer, graded)

    @property
    def diverged(self) -> bool:
        return self.model.take_divergence()

    def take(self, params: torch.nn.Module, optimizer: object = None) -> bool:
        """Check that no tensor was moved or replaced; was there a step?"""
        check_alone()
        current = {path_of(name): held for name, held in self._module.named_parameters()}
        for path, parameter, pointer in self._held:
            found = current.get(path)
            if found is None or found is not parameter:
                raise TaskError(
                    f"{path} was replaced by another tensor since the run was joined (by an "
                    "assignment, or load_state_dict with assign=True), and the optimizer still "
                    "steps the old one: copy values in place, or replace it before the optimizer "
                    "is made and the run is joined"
                )
            if found.data_ptr() != pointer:
                raise TaskError(
                    f"{path} was moved or replaced since the run was joined: move, convert and "
                    "load the module before"
                )
        stepped, self._optimizer_stepped = self._optimizer_stepped, False
        return stepped or self._versions != self._counted()

    def give(self) -> torch.nn.Module:
        """Return the module; its changes from here on are those of a step."""
        self._versions = self._counted()
        return self._module

    def _counted(self) -> list[int]:
        return [tensor._version for _, tensor, _ in self._held]  # noqa: SLF001  PyTorch names it so

    @property
    def optimizer(self) -> None:
        """Nothing: the optimizer keeps its state, and changes it in place."""

    checked = staticmethod(checked)

    def dispatched(self, loss: object, metrics: Mapping[str, object] = NO_METRICS) -> Dispatched:
        model, known = self.model, {name: checked(value, name) for name, value in metrics.items()}
        given = None if loss is None else checked(loss)
        return TorchStep(model.mark(), given, known, model.queued())


def path_of(name: str) -> str:
    return name.replace(".", "/")


def trained_of(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    named = {
        path_of(name): tensor for name, tensor in module.named_parameters() if tensor.requires_grad
    }
    for path, tensor in named.items():
        check_tensor(path, tensor)
    return named


# --- what cannot take part ----------------------------------------------------------------------


def check_alone() -> None:
    """Refuse a process that is one of several of `torch.distributed`."""
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
    """Refuse a parameter that cannot be read or written where it is."""
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


def holds(optimizer: torch.optim.Optimizer, trained: Collection[torch.Tensor]) -> bool:
    known = set(map(id, trained))
    return any(
        id(tensor) in known for group in optimizer.param_groups for tensor in group["params"]
    )
