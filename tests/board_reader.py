"""Reads the files of a run as TensorBoard does."""

from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event


def events_of(path: Path) -> list[Event]:
    return list(LegacyEventFileLoader(str(path)).Load())


def events_in(folder: Path) -> list[Event]:
    """Events of all files of a folder, in the order in which TensorBoard reads them."""
    return [event for path in sorted(folder.iterdir()) for event in events_of(path)]


def curves_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Points (x, y) of each curve, by name."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for event in events_in(folder):
        for value in event.summary.value:
            curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return curves
