"""The files of the product that a fragment's way from step to merge and back executes."""

import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.scenario import draw
from islands.lab.world.trial import play, trainers_of
from islands.lab.world.world import LearnerHost
from islands.model.interfaces import PendingStep
from islands.protocol.settings.choices import Automatic
from islands.protocol.settings.run import RunSettings
from tests.environment import ROOT

OURS = (ROOT / "islands", ROOT / "messaging")
LABORATORY = (ROOT / "islands" / "lab", ROOT / "messaging" / "simulation")
BETWEEN = range(60, 120)
"""The steps of one of two learners during which calls are noted: it joined long before, and the run
ends long after."""


class TracedTrainer(NumpyTrainer):
    """A learner some of whose steps are traced, with all that every role does meanwhile."""

    files: set[str]
    steps = 0

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        self.steps += 1
        if self.steps == BETWEEN.start:
            sys.setprofile(self._note)
        elif self.steps == BETWEEN.stop:
            sys.setprofile(None)
        return super().step(batch, learning_rate)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self.files.add(frame.f_code.co_filename)


def executed_files() -> list[str]:
    """Play two learners with a syncer and a supervisor on the virtual clock, without a fault."""
    settings = RunSettings(
        run="traced", interval_steps=4, fragments=2, quorum=Automatic.AUTO, budget_tokens=4000
    )
    hosts = {"ana": LearnerHost(), "ben": LearnerHost()}
    scenario = replace(draw(0), settings=settings, hosts=hosts, injections=(), heal_s=0.1)
    scenario = replace(scenario, standbys=None)
    plain, files = trainers_of(scenario), set[str]()

    def trainers(name: str, host: LearnerHost) -> NumpyTrainer:
        trainer = replace(plain, kind=TracedTrainer if name == "ana" else NumpyTrainer)(name, host)
        if isinstance(trainer, TracedTrainer):
            trainer.files = files
        return trainer

    outcome = play(scenario, trainers)
    assert outcome.violations == ()
    paths = [Path(name) for name in files]
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in paths
        if any(path.is_relative_to(folder) for folder in OURS)
        and not any(path.is_relative_to(folder) for folder in LABORATORY)
    )


if __name__ == "__main__":
    found = executed_files()
    sys.stdout.write("\n".join([*found, f"{len(found)}\n"]))
