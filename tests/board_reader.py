"""Reads what TensorBoard would read."""

from pathlib import Path

from tensorboardX.proto.event_pb2 import Event


def events_in(folder: Path) -> list[Event]:
    """Events of all files of a folder, each framed as: length, checksum, event, checksum."""
    events: list[Event] = []
    for path in sorted(folder.iterdir()):
        content, start = path.read_bytes(), 0
        while start < len(content):
            length = int.from_bytes(content[start : start + 8], "little")
            events.append(Event.FromString(content[start + 12 : start + 12 + length]))
            start += 16 + length
    return events


def curves_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Points (x, y) of each curve, by name."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for event in events_in(folder):
        for value in event.summary.value:
            curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return curves
