"""The state of a PyTorch optimizer: what one loop reads of it is what another one goes on with."""

from typing import Any

import pytest

from islands.protocol.errors import InvariantError

torch = pytest.importorskip("torch")

from islands.loops import own_model  # noqa: E402
from islands.loops.torch_moments import TorchMoments  # noqa: E402
from islands.loops.torch_parameters import TorchParameters  # noqa: E402
from tests.loops.test_torch_parameters import Network, layout_of  # noqa: E402

OPTIMIZERS = {
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-2, weight_decay=0.1),
    "adam, fused": lambda params: torch.optim.Adam(params, lr=1e-2, amsgrad=True, fused=True),
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9),
}


class Loop:
    """A loop of a user's, with a schedule that replaces its optimizer's step."""

    def __init__(self, kind: str, names: tuple[str, str] = ("weight", "bias")) -> None:
        torch.manual_seed(1)
        self.module = torch.nn.Linear(6, 5)
        self.optimizer = OPTIMIZERS[kind](self.module.parameters())
        self.schedule = torch.optim.lr_scheduler.ConstantLR(self.optimizer)
        known = dict(zip(names, self.module.parameters(), strict=True))
        self.moments = TorchMoments(self.optimizer, known)

    def step(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.optimizer.zero_grad()
        self.module(torch.randn(3, 6)).square().mean().backward()
        self.optimizer.step()

    def pieces(self) -> list[memoryview]:
        return [self.moments.read(piece).buffer() for piece in range(len(self.moments.plan.pieces))]

    def values(self) -> list[Any]:
        return [each.detach().clone() for each in self.module.parameters()]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_model, "MOMENT_PIECE_BYTES", 64)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("stepped", [False, True])
def test_a_restarted_loop_goes_on_with_a_peers_moments(kind: str, *, stepped: bool) -> None:
    donor, again = Loop(kind), Loop(kind)
    assert not again.optimizer.state, "nothing was stepped to find out what it will be"
    for seed in range(3):
        donor.step(seed)
    if stepped:
        again.step(9)
    assert again.moments.plan.schema == donor.moments.plan.schema
    pieces = donor.pieces()
    assert len(pieces) > 1
    again.moments.load(pieces)
    assert [bytes(piece) for piece in again.pieces()] == [bytes(piece) for piece in pieces]
    again.module.load_state_dict(donor.module.state_dict())
    for loop in (donor, again):
        loop.step(7)
    assert all(a.equal(b) for a, b in zip(donor.values(), again.values(), strict=True))


def test_a_state_is_known_by_the_paths_of_the_run() -> None:
    assert Loop("sgd").moments.plan.schema != Loop("sgd", ("kernel", "bias")).moments.plan.schema
    module = torch.nn.Linear(2, 2)
    plain = TorchMoments(torch.optim.SGD(module.parameters()), dict(module.named_parameters()))
    assert (plain.plan.schema, plain.plan.pieces) == ("", ())


def test_what_a_peer_gives_is_checked() -> None:
    loop = Loop("adamw")
    loop.step()
    before = [bytes(piece) for piece in loop.pieces()]
    with pytest.raises(InvariantError):
        loop.moments.load(loop.pieces()[:-1])
    broken = [memoryview(b"\xff" * len(piece)) for piece in before]
    with pytest.raises(InvariantError, match="finite"):
        loop.moments.load(broken)
    assert [bytes(piece) for piece in loop.pieces()] == before


@pytest.mark.parametrize("name", ["LBFGS", "Adafactor"])
def test_an_optimizer_that_cannot_be_tried_is_told(name: str) -> None:
    module = Network()
    optimizer = getattr(torch.optim, name)(module.parameters())
    parameters = TorchParameters(module, layout_of(), optimizer=optimizer)
    assert f"not given to peers: what state {name} keeps cannot be told" in parameters.untold
    assert (parameters.model.moments_schema, parameters.model.moment_pieces) == ("", 0)
