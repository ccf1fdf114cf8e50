"""What learners move together below half a unit in the last place arrives: PyTorch."""

from typing import Any

import pytest

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.protocol.settings.choices import Adoption
from tests.model.drift import BEGINS, ULPS, ulps_moved

torch = pytest.importorskip("torch")

from islands.loops.torch_parameters import TorchModel  # noqa: E402  (it needs PyTorch)

SHAPE = (4, 8)


@pytest.mark.parametrize("learners", [1, 4, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("adoption", [Adoption.OVERWRITE, Adoption.DELAY_CORRECTED])
def test_rounding_undoes_nothing(adoption: Adoption, dtype: str, learners: int) -> None:
    layout = plan([Leaf("w", SHAPE, dtype)], count=1, min_piece_bytes=4)
    tensors = [torch.full(SHAPE, BEGINS, dtype=getattr(torch, dtype)) for _ in range(learners)]
    models = [TorchModel(layout, [tensor]) for tensor in tensors]
    held: dict[int, Any] = dict(zip(map(id, models), tensors, strict=True))

    def step(model: TorchModel, moved: float) -> None:
        held[id(model)].add_(moved)

    moved = ulps_moved(models, step, adoption, dtype, 32)
    assert moved == pytest.approx(ULPS, rel=0.02)
