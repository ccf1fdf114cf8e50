"""An operator's wish reaches the supervisor, signed with the run's key, and its answer is shown."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from islands.cli.control import answered, show, target_of, tell
from islands.files.run_files import SUMMARY_FILE
from islands.protocol.errors import RefusedError, UnreachableError, UserError
from islands.protocol.identities import Incarnation, Phase, Role, Status
from islands.protocol.invitations import is_signed, signing_secret
from islands.protocol.membership import Credentials
from islands.protocol.messages.control import Command, CommandAnswer, MemberFigures, Verb
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.run.hosting.hub_address import HubAddress, write_hub_address
from islands.settings.commands import AddOptions, OperatorOptions, StatusOptions
from islands.settings.groups import ConnectOptions
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.link import Lane, Listener
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret

pytestmark = pytest.mark.integration

KEY, NONCE = "k" * 32, "of this hub"
TOKEN = "t" * 32
MEMBER = MemberFigures(
    "learner-0", Role.LEARNER, Incarnation(1, 2), Status.LIVE, Phase.STEPPING, 1234, 0.5
)


class Hub:
    """Answers as a supervisor would, over a real socket."""

    def __init__(self, folder: Path, token: str | None) -> None:
        self.folder = folder
        self.status = b""
        secret = None if token is None else Secret(token)
        self._network = WebsocketNetwork(MESSAGE_TYPES, secret=secret)
        self._credentials = Credentials("line", KEY.encode())
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        await self._network.open("127.0.0.1", 0)
        listener = self._network.listen("supervisor")
        self._tasks.append(asyncio.create_task(self._serve(listener)))
        write_hub_address(self.folder, HubAddress(self._network.url("supervisor"), "line"))
        (self.folder / "key").write_text(KEY + "\n")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._network.close()

    async def _serve(self, listener: Listener) -> None:
        while True:  # until the test ends
            link = await listener.accept()
            try:
                wish = (await link.receive()).body
            except LinkClosed:
                continue
            assert isinstance(wish, Command)
            genuine = is_signed(wish, signing_secret(self._credentials))
            if not genuine:
                body: object = CommandAnswer(done=False, told="not signed yet", nonce=NONCE)
            else:
                told = f"{wish.verb} {wish.target} {wish.count} heard"
                body = CommandAnswer(done=True, told=told, members=(MEMBER,))
            status = (memoryview(self.status),) if genuine and self.status else ()
            lane = Lane.BULK if status else Lane.CONTROL
            link.send(Envelope("supervisor", link.remote, 1, body, status), lane)


@asynccontextmanager
async def hub(folder: Path, token: str | None = None) -> AsyncIterator[Hub]:
    made = Hub(folder, token)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def test_a_command_reaches_the_hub_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with hub(tmp_path):
        assert await answered(Verb.ADD, AddOptions(folder=tmp_path, learners="site:3")) == 0
    assert capsys.readouterr().out == "add site 3 heard\n"


async def test_who_is_asked_after_the_end_of_a_run_says_so(tmp_path: Path) -> None:
    async with hub(tmp_path):
        pass
    options = OperatorOptions(folder=tmp_path)
    with pytest.raises(UnreachableError, match=r"nobody listens at [^;]*$"):
        await answered(Verb.STOP, options)
    (tmp_path / SUMMARY_FILE).write_text("{}")
    with pytest.raises(UnreachableError, match=r"nobody listens at .* has ended"):
        await answered(Verb.STOP, options)


async def test_the_token_of_the_folder_opens_the_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ISLANDS_TOKEN", raising=False)
    async with hub(tmp_path, TOKEN):
        options = OperatorOptions(folder=tmp_path)
        with pytest.raises(RefusedError, match=r"no supervisor could be told: .*(secret|token)"):
            await tell(target_of(options), Verb.STATUS, "", 1)
        (tmp_path / "token").write_text(TOKEN + "\n")
        (tmp_path / "token").chmod(0o600)
        assert (await tell(target_of(options), Verb.STATUS, "", 1)).done


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": "x"}'])
def test_a_damaged_hub_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "hub.json").write_text(text)
    with pytest.raises(
        UserError, match=r"hub\.json is damaged: it does not say where the supervisor is"
    ):
        target_of(OperatorOptions(folder=tmp_path))


def test_an_option_goes_before_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_hub_address(tmp_path, HubAddress("ws://a:1/supervisor", "line"))
    (tmp_path / "token").write_text(TOKEN)
    found = target_of(OperatorOptions(folder=tmp_path, supervisor=("b:2",), key_file=Path("k")))
    assert (found.addresses, found.run) == (("ws://b:2/supervisor",), "line")
    assert found.key_file == Path("k")
    assert found.connecting.token_file == tmp_path / "token"
    monkeypatch.setenv("ISLANDS_TOKEN", TOKEN)
    assert target_of(OperatorOptions(folder=tmp_path)).connecting == ConnectOptions()


async def test_a_program_is_told_the_status_as_the_hub_tells_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = StatusOptions(folder=tmp_path, json=True)
    async with hub(tmp_path) as there:
        with pytest.raises(RefusedError, match="no status as JSON"):
            await answered(Verb.STATUS, options)
        there.status = b'{"tokens":7}'
        assert await answered(Verb.STATUS, options) == 0
    assert capsys.readouterr().out == '{"tokens":7}\n'


def test_status_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    show((MEMBER,))
    told = " ".join(capsys.readouterr().out.split())
    assert "name role status phase steps silent incarnation" in told
    assert "learner-0 learner live stepping 1,234 0.5 s 1.2" in told
