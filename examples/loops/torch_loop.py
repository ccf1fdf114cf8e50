"""A loop of PyTorch, which stays as it is: a boundary follows each step of its optimizer.

    python -m islands.syncer --run.budget_tokens 400000
    python examples/loops/torch_loop.py 127.0.0.1:7070

It may train one model with loops of JAX: with `beside-jax` it joins the hub of `linen_loop.py`,
which has the same tensors under other names, and its matrices transposed. Only the lines marked
with ★ are Islands'.
"""

import sys

import torch

import islands.torch  # ★

WIDTH, ROWS = 32, 16
BESIDE_JAX = {  # ★
    "first/weight": "Dense_0/kernel",
    "first/bias": "Dense_0/bias",
    "second/weight": "Dense_1/kernel",
    "second/bias": "Dense_1/bias",
}


class Network(torch.nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        """Draw the weights."""
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.second = torch.nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a number for each row."""
        return self.second(torch.tanh(self.first(x)))


def main(address: str, name: str | None = None, *, beside_jax: bool = False) -> None:
    """Train until the run is over."""
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    step, loss = 0, torch.zeros(())
    with islands.torch.join(  # ★
        *(address, model, optimizer),
        tokens_per_step=ROWS,
        name=name,
        rename=BESIDE_JAX if beside_jax else {},
        transposed=("first/weight", "second/weight") if beside_jax else (),
    ) as run:
        while not run.over:  # ★
            x = torch.randn(ROWS, WIDTH)
            loss = ((model(x) - torch.sin(x.sum(1, keepdim=True) / 4)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            run.log({"loss": loss.detach()})  # ★
            optimizer.step()
            step += 1
    print(f"{step} steps, loss {loss.item():.4f}; {run.why}")


if __name__ == "__main__":
    main(sys.argv[1], beside_jax="beside-jax" in sys.argv)
