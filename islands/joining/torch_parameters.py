"""The parameters of a PyTorch module as the model that a learner exchanges.

The tensors stay where they are and are changed in place, so the module and its optimizer go on with
the objects they hold; what is held here is detached from their gradients. JAX is not imported.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from islands.errors import InvariantError, TaskError
from islands.joining.places import places_of
from islands.joining.without_moments import WithoutMoments
from islands.layout.leaves import Layout
from islands.learner.stepped_compute import Dispatched
from islands.settings.run import SnapshotPrecision

WIRE = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class TorchSnapshot:
    """A difference on its way to the host; `arrived` is None where it was made there."""

    values: torch.Tensor
    arrived: "torch.cuda.Event | None"

    def buffer(self) -> memoryview:
        """Wait until it is on the host and return its bytes."""
        if self.arrived is not None:
            self.arrived.synchronize()
        array: NDArray[np.uint8] = self.values.view(torch.uint8).numpy()
        return array.data.toreadonly()

    def ready(self) -> bool:
        """Whether `buffer` would return at once."""
        return self.arrived is None or bool(self.arrived.query())


@dataclass(frozen=True, slots=True)
class TorchStep:
    """A step that was dispatched, and its loss if that is told."""

    loss: object
    arrived: "torch.cuda.Event | None"

    def wait(self) -> float | None:
        """Wait until the step is done, and return its loss."""
        if self.arrived is not None:
            self.arrived.synchronize()
        if self.loss is None:
            return None
        loss = self.loss
        return float(loss.detach() if isinstance(loss, torch.Tensor) else loss)  # type: ignore[arg-type]


class TorchModel(WithoutMoments):
    """The trained tensors of a module, and the base of each fragment.

    Args:
        layout: the layout of the run.
        tensors: the tensors in the order of the layout, on one device; a transposed one is a view.
    """

    compiling = False

    def __init__(self, layout: Layout, tensors: Sequence[torch.Tensor]) -> None:
        """Take the values of the tensors for the base."""
        self.layout = layout
        self._tensors = list(tensors)
        self._device = tensors[0].device
        self._base = [self._read(index) for index in range(len(layout.fragments))]

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> TorchSnapshot:
        """Dispatch base − local of a fragment, and its copy to the host."""
        difference = (self._base[fragment] - self._read(fragment)).to(WIRE[precision])
        if self._device.type != "cuda":
            return TorchSnapshot(difference.cpu(), None)
        host = torch.empty(difference.shape, dtype=difference.dtype, pin_memory=True)
        host.copy_(difference, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return TorchSnapshot(host, arrived)

    def value(self, fragment: int) -> NDArray[np.float32]:
        """Copy the local value of a fragment to the host."""
        found: NDArray[np.float32] = self._read(fragment).cpu().numpy()
        return found

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        """Dispatch base := value and local := value."""
        self._base[fragment] = self._uploaded(fragment, value)
        self._write(fragment, self._base[fragment])

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        """Dispatch local := local + (value − (base − sent)) and base := value."""
        new, known = self._uploaded(fragment, value), self._base[fragment]
        if sent is not None:
            known = known - self._uploaded(fragment, sent)
        self._write(fragment, self._read(fragment) + (new - known))
        self._base[fragment] = new

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        """Dispatch local := share · local + (1 − share) · value and base := value."""
        new = self._uploaded(fragment, value)
        self._write(fragment, share * self._read(fragment) + (1 - share) * new)
        self._base[fragment] = new

    def finite(self) -> bool:
        """Whether all trained tensors are finite; waits for the device."""
        return all(bool(torch.isfinite(tensor).all()) for tensor in self._tensors)

    def _read(self, fragment: int) -> torch.Tensor:
        """Copy a fragment's flat value in float32 into a new tensor."""
        held = self.layout.fragments[fragment]
        flat = torch.empty(held.size, dtype=torch.float32, device=self._device)
        for piece in held.pieces:
            part = flat[piece.offset : piece.offset + piece.size]
            part.copy_(self._tensors[piece.leaf].reshape(-1)[piece.start : piece.stop])
        return flat

    def _write(self, fragment: int, flat: torch.Tensor) -> None:
        """Write a fragment's flat value into the tensors, in their own dtypes."""
        for piece in self.layout.fragments[fragment].pieces:
            part = flat[piece.offset : piece.offset + piece.size]
            tensor = self._tensors[piece.leaf]
            if tensor.is_contiguous():
                tensor.view(-1)[piece.start : piece.stop].copy_(part)
            else:  # a transposed matrix, whose rows are not cut into
                rows = tensor[piece.row_start : piece.row_stop]
                rows.copy_(part.view(rows.shape))

    def _uploaded(self, fragment: int, value: NDArray[np.float32]) -> torch.Tensor:
        """Copy a flat value to the device, so that the caller may reuse its buffer."""
        size = self.layout.fragments[fragment].size
        if value.shape != (size,) or value.dtype != np.float32:
            raise InvariantError(f"fragment {fragment} is float32[{size}], not {value.dtype}")
        return torch.tensor(value, device=self._device)


class TorchParameters:
    """The parameters of a module, which are changed in place.

    Args:
        module: the module.
        layout: the layout of the run.
        rename: path in the run by name in the module, where both differ; names are joined by `/`.
        transposed: names of the matrices that the run holds transposed, as JAX's layers do.

    Raises:
        TaskError: the trained tensors are not those of the layout, or lie on several devices.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        layout: Layout,
        *,
        rename: Mapping[str, str] | None = None,
        transposed: Collection[str] = (),
    ) -> None:
        named = {
            name.replace(".", "/"): tensor
            for name, tensor in module.named_parameters()
            if tensor.requires_grad
        }
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
        places = places_of(layout, paths, shapes, rename or {}, lambda _: True)
        self.model = TorchModel(layout, [tensors[place] for place in places])
        self._module = module
        self._cuda = tensors[0].device.type == "cuda"
        if not self.model.finite():
            raise TaskError("the parameters that join the run are not all finite numbers")

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite since this was asked last."""
        found, self.model.diverged = self.model.diverged, False
        return found

    def take(self, params: torch.nn.Module) -> None:
        """Do nothing: the tensors are the same objects after a step."""

    def give(self) -> torch.nn.Module:
        """Return the module."""
        return self._module

    def dispatched(self, loss: object) -> Dispatched:
        """Return what tells that the last step has finished."""
        if not self._cuda:
            return TorchStep(loss, None)
        arrived = torch.cuda.Event()
        arrived.record()
        return TorchStep(loss, arrived)
