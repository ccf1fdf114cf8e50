"""What a hub says and refuses before anything runs."""

import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from islands.actors.epochs import epoch_disk, take_epoch
from islands.files.run_files import HUB_FILE
from islands.files.slots import Slots
from islands.model.workload import load_workload
from islands.protocol.errors import DamagedError, UserError
from islands.protocol.settings.run import RunSettings
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.hosting.hub_address import HubAddress, read_hub_address, write_hub_address
from islands.run.hosting.process_runtime import credentials_of
from islands.run.local_cluster import dialled, listening_words
from islands.run.run_claim import BEGINNING, ROLES, claim_folder, kept_files, restore_files
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.settings.run_spec import RunSpec, write
from messaging.errors import LocalFault


def test_a_new_run_without_its_beginning_leaves_no_folder(tmp_path: Path) -> None:
    spec, folder = toy(), tmp_path / "run"
    with pytest.raises(UserError, match="there is no such file"):
        claim_folder(folder, spec, load_workload(spec), tmp_path / "missing.safetensors")
    assert not folder.exists()


# --- one hub, and what it leaves to the next ------------------------------------------------------


def toy(budget_tokens: int | None = None) -> RunSpec:
    return RunSpec(
        RunSettings(budget_tokens=budget_tokens),
        "islands.lab.toys.toy_workload:Sleeping",
        {"megabytes": 0.25},
    )


def test_a_folder_has_one_hub(tmp_path: Path) -> None:
    spec = toy()
    claim = claim_folder(tmp_path, spec, load_workload(spec))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match="in use by another hub; choose another, or end that one"):
        claim_folder(tmp_path, spec, load_workload(spec))
    assert sorted(tmp_path.iterdir()) == before
    claim.lock.close()
    claim_folder(tmp_path, spec, load_workload(spec)).lock.close()


def test_a_hub_knows_that_its_run_had_other_settings(tmp_path: Path) -> None:
    spec, other = toy(10), toy(20)
    first = claim_folder(tmp_path, spec, load_workload(spec))
    write(tmp_path, spec, first.plan)
    first.lock.close()
    changes: list[tuple[str, ...]] = []
    for wanted in (spec, other, other):
        claim = claim_folder(tmp_path, wanted, None)
        changes.append(claim.changed)
        claim.lock.close()
    write(tmp_path, other, first.plan)
    last = claim_folder(tmp_path, other, None)
    last.lock.close()
    told = ("budget_tokens: 10 -> 20",)
    assert (first.changed, changes, last.changed) == ((), [(), told, told], ())


def test_where_the_hub_is_is_replaced_at_once(tmp_path: Path) -> None:
    first = HubAddress("ws://127.0.0.1:1/supervisor", "test")
    write_hub_address(tmp_path, first)
    with (tmp_path / HUB_FILE).open("rb") as old:
        write_hub_address(tmp_path, replace(first, supervisor="ws://127.0.0.1:2/supervisor"))
        assert b":1/" in old.read()
    assert read_hub_address(tmp_path).supervisor == "ws://127.0.0.1:2/supervisor"
    assert [path.name for path in tmp_path.iterdir()] == [HUB_FILE]


def hub_settings(folder: Path, listen: str) -> CoordinatorSettings:
    return CoordinatorSettings(
        folder, toy(), ListenOptions(listen), ConnectOptions(), syncer_here=True
    )


async def test_a_port_in_use_leaves_no_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        mine = tmp_path / "mine"
        mine.mkdir()
        for folder in (tmp_path / "runs" / "one", mine):
            settings = hub_settings(folder, address)
            hub = Coordinator(settings, claim_folder(folder, toy(), load_workload(toy())), None)
            with pytest.raises(LocalFault, match="in use"):
                await hub.open()
    assert not (tmp_path / "runs" / "one").exists()
    assert mine.is_dir()
    claim_folder(mine, toy(), load_workload(toy())).lock.close()


async def test_what_a_run_leaves_is_for_its_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, shared = tmp_path / "one", tmp_path / "shared"
    shared.mkdir(mode=0o755)
    for place in (folder, shared):
        hub = Coordinator(
            hub_settings(place, "127.0.0.1:0"),
            claim_folder(place, toy(), load_workload(toy())),
            None,
        )
        await hub.open()
        await hub.close()
        modes = {
            path.name: path.stat().st_mode & 0o777
            for path in (place, place / "journal", place / "key")
        }
        assert modes == {
            place.name: 0o755 if place is shared else 0o700,
            "journal": 0o700,
            "key": 0o600,
        }
    assert "key" not in capsys.readouterr().err
    (folder / "key").chmod(0o666)
    credentials_of("run", folder / "key")
    said = (
        f"others can read or write the run's key {folder / 'key'}: run chmod 600 {folder / 'key'}"
    )
    assert said in capsys.readouterr().err


def test_a_journal_without_its_plan_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    claim_folder(folder, toy(), load_workload(toy())).lock.close()
    for role in ROLES:
        take_epoch(Slots(epoch_disk(folder, role)))
    with pytest.raises(DamagedError, match=r"holds the journal of a run, but run\.json and plan"):
        claim_folder(folder, toy(), load_workload(toy()))


PLACE = HubAddress("ws://a:1/supervisor", "test", key_mark="k", token_mark="t")  # noqa: S106  no secret


def test_what_a_process_must_have_to_reach_its_hub() -> None:
    for other in (
        replace(PLACE, supervisor="ws://a:2/supervisor"),
        replace(PLACE, key_mark="other"),
        replace(PLACE, token_mark=""),
    ):
        assert other.needed != PLACE.needed
    assert replace(PLACE, task_folders=("elsewhere",)).needed == PLACE.needed


def test_files_that_are_gone_are_written_again_for_their_owner_alone(tmp_path: Path) -> None:
    folder, names = tmp_path / "run", BEGINNING[:-1]
    folder.mkdir()
    for name in names:
        (folder / name).write_text(name)
    kept = kept_files(folder)
    assert restore_files(kept) == []
    shutil.rmtree(folder)
    assert restore_files(kept) == [*names]
    assert {path.name: path.read_text() for path in folder.iterdir()} == {n: n for n in names}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    (folder / names[0]).write_text("newer")
    (folder / names[1]).unlink()
    assert restore_files(kept) == [names[1]]
    assert (folder / names[0]).read_text() == "newer"


# --- children -------------------------------------------------------------------------------------

CERTIFIED = ListenOptions("0.0.0.0:7070", tls_certificate=Path("c.pem"), tls_key=Path("k.pem"))


@pytest.mark.parametrize(
    ("listening", "told"),
    [
        (ListenOptions("0.0.0.0:7070"), "ws://127.0.0.1:7070/supervisor"),
        (ListenOptions("[::]:7070"), "ws://[::1]:7070/supervisor"),
        (ListenOptions("[fe80::1]:7070"), "ws://[fe80::1]:7070/supervisor"),
        (ListenOptions("10.0.0.1:7070"), "ws://10.0.0.1:7070/supervisor"),
        (CERTIFIED, "ws://hub.example:7070/supervisor"),
    ],
)
def test_children_dial_what_is_bound_or_certified(listening: ListenOptions, told: str) -> None:
    assert dialled("ws://hub.example:7070/supervisor", listening) == told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ListenOptions("[::]:7070"), ["--listen", "[::]:0"]),
        (
            ListenOptions("10.0.0.1:7070", advertise="[fd00::1]:80"),
            ["--listen", "10.0.0.1:0", "--advertise", "[fd00::1]"],
        ),
        (
            ListenOptions("10.0.0.1:7070", advertise="hub.example"),
            ["--listen", "10.0.0.1:0", "--advertise", "hub.example"],
        ),
    ],
)
def test_a_child_listens_beside_its_hub(options: ListenOptions, words: list[str]) -> None:
    assert listening_words(options) == words
