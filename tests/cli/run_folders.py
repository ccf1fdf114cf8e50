"""Folders of runs as a hub leaves them, made without running one: spec, plan and a journal."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from islands.files.disk import RealDisk
from islands.layout.leaves import Layout
from islands.model.workload import load_workload
from islands.protocol.identities import Version
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.journalling import fresh
from islands.protocol.syncer.versions import Published
from islands.settings.run_spec import RunPlan, RunSpec, write
from islands.syncer.journal import Journal, encode

Floats = NDArray[np.float32]

TASK = "tests.lab.study.regression:Regression"
WIDTH = 256
OWN = ("--task", TASK)
"""Nobody evaluates what a folder alone names."""

SPEC = RunSpec(RunSettings(run="mine", fragments=2), TASK, {"width": WIDTH})


class KilledRun:
    """A run whose hub was killed: its journal is all that tells its values."""

    def __init__(self, folder: Path, spec: RunSpec = SPEC, layout: Layout | None = None) -> None:
        """Plan the run from its task, unless it has a layout of its own."""
        self.folder = folder
        self.spec = spec
        self.plan = (
            load_workload(spec, allowed=["tests"]).plan(spec.settings)
            if layout is None
            else RunPlan(layout, shards=4)
        )
        write(folder, spec, self.plan)
        count = len(self.plan.layout.fragments)
        self._journal = Journal(RealDisk(folder / "journal"), count)
        epoch = self._journal.begin_epoch(1)
        self.durable = fresh(spec.settings, fragments=count, shards=self.plan.shards, epoch=epoch)

    def publish(self, fragment: int, number: int, value: Floats) -> None:
        version = Version(self.durable.epoch, number)
        self.durable.sequence += 1
        self.durable.published[fragment] = Published(version, "", number)
        arrays = {"value": value, "momentum": np.zeros_like(value)}
        sequence, metadata = self.durable.sequence, encode(self.durable)
        self._journal.write(sequence, metadata, fragment, version, arrays)

    def publish_all(self, number: int, arrays: dict[str, Floats]) -> None:
        """Journal one version of every fragment of a whole model."""
        for fragment, value in enumerate(self.plan.layout.disassemble(arrays)):
            self.publish(fragment, number, value)
