"""Epochs never go back, whichever of their records is flipped, cut or taken away."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from islands.actors.epochs import COPY, KnownEpochs, known_epochs, next_epoch, take_epoch
from islands.files.disk import RealDisk
from islands.files.slots import Slots
from islands.protocol.errors import DamagedError

Damage = Callable[[Path], None]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


BOTH = ("epoch.a.safetensors", "epoch.b.safetensors")
DAMAGES: list[Damage] = [flip, cut, Path.unlink]


def slots(folder: Path) -> Slots:
    """Of a process that has just begun; its copy lies beside the folder."""
    place = folder / "supervisor"
    return Slots(RealDisk(place, elsewhere={COPY: folder / "supervisor.epoch"}))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_an_older_copy_of_the_folder_is_seen_by_the_epoch_beside_it(tmp_path: Path) -> None:
    take_epoch(slots(tmp_path))
    shutil.copytree(tmp_path / "supervisor", tmp_path / "old")
    used = [take_epoch(slots(tmp_path))[0] for _ in range(3)]
    shutil.rmtree(tmp_path / "supervisor")
    (tmp_path / "old").rename(tmp_path / "supervisor")
    assert take_epoch(slots(tmp_path))[0] > max(used)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("starts", [1, 2, 3, 40])
def test_no_epoch_is_taken_twice(tmp_path: Path, damage: Damage, starts: int) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        used = [take_epoch(slots(folder))[0] for _ in range(starts)]
        path = files(folder)[number]
        damage(path)
        epoch, known = take_epoch(slots(folder))
        assert known.damaged == (COPY if path.suffix == ".epoch" else path.name,)
        assert epoch > max(used)
        again, known = take_epoch(slots(folder))
        assert (again, known.damaged) == (epoch + 1, ())


@pytest.mark.parametrize("starts", [1, 2, 3])
def test_a_folder_that_is_gone_is_seen_by_the_copy_beside_it(tmp_path: Path, starts: int) -> None:
    used = [take_epoch(slots(tmp_path))[0] for _ in range(starts)]
    for path in (tmp_path / "supervisor").iterdir():
        path.unlink()
    known = known_epochs(slots(tmp_path))
    assert known.gone
    assert known.damaged == BOTH
    assert take_epoch(slots(tmp_path))[0] > max(used)
    assert not known_epochs(slots(tmp_path)).gone


def test_nothing_is_damaged_where_nothing_was(tmp_path: Path) -> None:
    assert known_epochs(slots(tmp_path)) == KnownEpochs((), ())
    assert take_epoch(slots(tmp_path)) == (1, KnownEpochs((), ()))


def test_a_first_start_that_was_killed_while_it_wrote_has_used_none(tmp_path: Path) -> None:
    take_epoch(slots(tmp_path))
    *torn, copy = files(tmp_path)
    assert copy.suffix == ".epoch"
    copy.unlink()
    for path in torn:
        cut(path)
    epoch, known = take_epoch(slots(tmp_path))
    assert epoch >= 1
    assert known.damaged == (*BOTH, COPY)
    assert take_epoch(slots(tmp_path))[0] > epoch


def test_epochs_that_nobody_knows_are_not_guessed(tmp_path: Path) -> None:
    take_epoch(slots(tmp_path))
    for path in files(tmp_path):
        flip(path)
    before = {path: path.read_bytes() for path in files(tmp_path)}
    with pytest.raises(DamagedError, match=f"none of {', '.join((*BOTH, COPY))} is whole"):
        take_epoch(slots(tmp_path))
    assert {path: path.read_bytes() for path in files(tmp_path)} == before


@pytest.mark.parametrize(
    ("known", "at_least", "epoch"),
    [
        (KnownEpochs((), ()), 1, 1),
        (KnownEpochs((3, 2, 3), ()), 1, 4),
        (KnownEpochs((2,), BOTH[:1]), 1, 4),
        (KnownEpochs((2,), ()), 2**40, 2**40),
        (KnownEpochs((), BOTH[:1]), 7, 7),
    ],
)
def test_the_next_epoch(known: KnownEpochs, at_least: int, epoch: int) -> None:
    assert next_epoch(known, at_least) == epoch
