"""Goodput by the event model alone: chips that fail under learners that never wait for anything.

It has no actors, network or syncer. What the simulated fleet (`fleet.py`) loses beyond it, the
program itself has cost.
"""

import random
from collections.abc import Mapping

from islands.lab.experiments.cells import Cell, Figures, figures_of
from islands.lab.experiments.chips import Counted, Device, ElasticChips, RigidChips


def devices_of(cell: Cell) -> Mapping[str, Device]:
    """Return the device of each learner, by name; each has a random stream of its own."""
    kind = ElasticChips if cell.elastic else RigidChips
    return {
        name: kind(
            cell.each,
            random.Random(f"{cell.seed}/{cell.chips:g}/{cell.learners}/{name}"),
            Counted(cell.warmup_s, cell.end_s),
        )
        for name in cell.names
    }


def play(cell: Cell) -> Figures:
    """Let each learner take step after step; returns goodput and uptime."""
    devices = devices_of(cell)
    for index, device in enumerate(devices.values()):
        now_s = 0.0
        while now_s < cell.end_s:
            now_s = device.step(now_s, cell.speed(index) * cell.step_s)
    return figures_of(cell, [device.counted for device in devices.values()])
