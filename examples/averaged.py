"""An average of parameters (EMA) that is evaluated, and neither trained on, merged nor sent.

    islands run --task averaged:Averaged --run.budget_tokens 60_000      # in this folder

Whoever evaluates holds the average: it is of the values that were published, one for each
evaluation, so `decay` goes with `evaluate_every_s`. A learner knows nothing of it. A hub that is
restarted begins it anew.
"""

from dataclasses import dataclass, field

import jax
from jaxtyping import PyTree
from line import Line


@dataclass(frozen=True)
class Averaged(Line):
    """The line of `line.py`, whose average is evaluated beside it.

    Attributes:
        decay: Share of the average that an evaluation keeps.
        held: The average, once there is one; tasks are equal whatever it is.
    """

    decay: float = 0.9
    held: list[PyTree] = field(default_factory=list, compare=False, repr=False)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """The line that was found, and that of the average."""
        keep = self.decay
        before = self.held[0] if self.held else params
        average = jax.tree.map(lambda old, new: keep * old + (1 - keep) * new, before, params)
        told = super().evaluate(average, state)
        self.held[:] = [average]  # only now: what is merely traced has no figures, and ends above
        averages = {f"average_{name}": value for name, value in told.items()}
        return super().evaluate(params, state) | averages
