"""The signals that end a process in order, and output whose reader has gone away."""

import asyncio
import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import islands
from islands.files.spare_files import spare_of
from islands.run.hosting.process_runtime import (
    ENDING,
    keep_key,
    key_file_of,
    key_in,
    on_ending_signals,
)
from islands.run.hosting.standard_streams import LossyOutput, fitted
from islands.settings.groups import ConnectOptions

ISLANDS = Path(islands.__file__).parent


@pytest.fixture
def hangups() -> Iterator[None]:
    """SIGHUP has its default action, also where these tests run under nohup; then as before."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", ENDING)
async def test_each_of_them_is_handled_by_its_name(number: signal.Signals) -> None:
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with on_ending_signals(asked.set_result):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10.0):
            assert await asked == number.name


@pytest.mark.usefixtures("hangups")
async def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with on_ending_signals(asked.set_result):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10.0):
            assert await asked == "SIGTERM"


def test_a_pipe_without_a_reader_ends_the_output_alone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        output = LossyOutput(stream)
        for _ in range(2):
            assert output.write("a sentence\n") == 11
            output.flush()
        assert Path(f"/proc/self/fd/{writer}").resolve() == Path(os.devnull)


def test_a_full_disk_ends_no_output() -> None:
    with Path("/dev/full").open("w") as stream:
        output = LossyOutput(stream)
        output.write("a sentence\n")
        output.flush()
        where = Path(f"/proc/self/fd/{stream.fileno()}").resolve()
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # for the last flush
    assert where == Path("/dev/full")


def test_one_file_handles_the_signals_of_a_run() -> None:
    """A process that handled SIGHUP by itself would end under nohup with its terminal."""
    handlers = [
        str(file.relative_to(ISLANDS))
        for file in sorted(ISLANDS.rglob("*.py"))
        if "add_signal_handler(" in file.read_text() and "lab" not in file.parts
    ]
    assert handlers == ["run/hosting/process_runtime.py"]


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


def test_the_key_is_beside_the_token_so_that_it_outlives_the_folder(tmp_path: Path) -> None:
    folder, token = tmp_path / "run", tmp_path / "secrets" / "token"
    token.parent.mkdir()
    folder.mkdir()
    beside = token.with_name("token.key")
    assert key_file_of(folder, ConnectOptions(token_file=token)) == beside
    assert key_file_of(folder, ConnectOptions()) == folder / "key"
    inside = ConnectOptions(token_file=folder / "token")
    assert key_file_of(folder, inside) == folder / "key"
    assert key_file_of(folder, inside, tmp_path / "named") == tmp_path / "named"
    for place in (folder / "key", spare_of(folder / "key")):
        place.parent.mkdir(exist_ok=True)
        place.write_text("of a run that was begun before")
        assert key_file_of(folder, ConnectOptions(token_file=token)) == folder / "key"
        place.unlink()


@pytest.mark.parametrize("damage", [Path.unlink, flip])
def test_a_damaged_key_is_that_of_its_copy(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "token.key"
    assert keep_key(path) == []
    made = path.read_bytes()
    damage(path)
    assert key_in(path) == made.strip(), "also before the hub is started again"
    assert keep_key(path) == ["token.key"]
    assert path.read_bytes() == made
    assert [each.stat().st_mode & 0o777 for each in (path, spare_of(path))] == [0o600, 0o600]
    damage(spare_of(path))
    assert keep_key(path) == []
    path.unlink()
    assert keep_key(path) == ["token.key"], "the copy was written again"
    assert path.read_bytes() == made


def test_a_key_is_replaced_by_removing_both(tmp_path: Path) -> None:
    path = tmp_path / "key"
    keep_key(path)
    made = path.read_bytes()
    for each in (path, spare_of(path)):
        each.unlink()
    assert keep_key(path) == []
    assert path.read_bytes() != made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_has_its_lines_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    sentence = "a sentence that is longer than twenty columns"
    assert fitted(sentence, io.StringIO()) == sentence
    lines = fitted(sentence, Terminal()).split("\n")
    assert " ".join(lines) == sentence
    assert max(map(len, lines)) <= 20


def test_a_command_is_copied_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    command = "    run --name a --folder /a/path/that/is/long"
    assert fitted(f"in another terminal:\n{command}", Terminal()).split("\n")[1:] == [command]


def test_a_word_is_never_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    address = "http://127.0.0.1:7070/page/#0123456789"
    assert fitted(f"watch it: {address}", Terminal()).split("\n") == ["watch it:", address]
