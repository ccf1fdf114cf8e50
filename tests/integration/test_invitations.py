"""A hub whose guests come by invitations, and what an overheard command is worth to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from islands.cli import invite
from islands.cli.control import ask, target_of, tell
from islands.cli.parsing import Common
from islands.files.run_files import REVOKED_FILE
from islands.model.workload import load_workload
from islands.protocol.errors import RefusedError, SettingsError, UserError
from islands.protocol.identities import OPERATOR, SUPERVISOR, Role
from islands.protocol.invitations import Invitations, Invited
from islands.protocol.membership import Credentials
from islands.protocol.messages.control import Command, CommandAnswer, Verb
from islands.protocol.messages.membership import Evicted, Join, Joined, Refused
from islands.protocol.messages.registry import MESSAGE_TYPES, PROTOCOL
from islands.protocol.settings.run import RunSettings
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.hosting.process_runtime import network_of, token_of
from islands.run.hosting.revocations import read_revoked, revoke
from islands.run.run_claim import claim_folder
from islands.settings.commands import InviteOptions, OperatorOptions
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.settings.run_spec import RunSpec
from messaging.codec.frames import Assembler, Codec
from messaging.envelope import Envelope
from messaging.errors import DialDenied, LinkClosed, LocalFault
from messaging.links.link import Link
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret
from tests.integration.programs import (
    control,
    entries,
    hub_address,
    merges,
    open_room,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOKEN = "t" * 32


@dataclass(slots=True)
class Lab:
    """A hub that listens in this process, and the networks of those who dial it."""

    hub: Coordinator
    folder: Path
    networks: list[WebsocketNetwork] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.hub.network.url(SUPERVISOR)

    def invite(self, name: str, role: Invited, days: int = 30) -> Path:
        number = len(list(self.folder.parent.iterdir()))
        out = self.folder.with_name(f"{name}-{role.value}-{number}")
        invite.run(InviteOptions(name, role, days, self.folder, out), Common())
        return out

    def operator(self, invitation: Path) -> OperatorOptions:
        where = urlsplit(self.address).netloc
        return OperatorOptions(None, (where,), ConnectOptions(token_file=invitation))

    async def command(self, verb: Verb, target: str = "", by: Path | None = None) -> CommandAnswer:
        mine = ConnectOptions(token_file=self.folder.with_name("token"))
        options = OperatorOptions(self.folder, connecting=mine)
        return await tell(target_of(options if by is None else self.operator(by)), verb, target, 1)

    async def dial(self, token: Path, name: str, *, to: str = SUPERVISOR) -> Link:
        network = network_of(ConnectOptions(), token=token_of(ConnectOptions(token_file=token)))
        self.networks.append(network)
        return await network.dial(self.hub.network.url(to), local=name)

    async def join(self, token: Path, name: str, role: Role = Role.LEARNER) -> tuple[Link, object]:
        link = await self.dial(token, name)
        join = Join(PROTOCOL, "run", role, name, self.hub.plan.layout.fingerprint)
        link.send(Envelope(name, link.remote, 1, join))
        return link, await first(link, Joined, Refused)


async def first(link: Link, *kinds: type) -> object:
    while True:  # until it comes, or the link ends
        body = (await link.receive()).body
        if isinstance(body, kinds):
            return body


@asynccontextmanager
async def lab(folder: Path) -> AsyncIterator[Lab]:
    """Open the hub of a folder; the file of its token is beside that."""
    token = folder.with_name("token")
    if not token.exists():
        Secret(TOKEN).write(token)
    spec = RunSpec(RunSettings(), "islands.lab.toys.toy_workload:Sleeping", {"megabytes": 0.25})
    settings = CoordinatorSettings(
        folder,
        spec,
        ListenOptions("127.0.0.1:0"),
        ConnectOptions(token_file=token),
        syncer_here=True,
    )
    hub = Coordinator(settings, claim_folder(folder, spec, load_workload(spec)), None)
    await hub.open()
    ready = asyncio.Event()
    running = asyncio.create_task(hub.run(ready.set))
    made = Lab(hub, folder)
    try:
        await ready.wait()
        yield made
    finally:
        for network in made.networks:
            await network.close()
        await hub.leave("the test ends")
        await running


# --- operators ------------------------------------------------------------------------------------


async def test_an_operator_by_invitation_stops_a_run_and_the_tape_says_who(tmp_path: Path) -> None:
    async with lab(tmp_path / "run") as here:
        ana = here.invite("ana", Invited.OPERATOR)
        assert (await here.command(Verb.PAUSE)).done
        assert (await here.command(Verb.STOP, by=ana)).done
        assert here.hub.cluster.core is not None
        assert here.hub.cluster.core.stopping == "stopped by an operator"
    told = [
        (entry["by"], entry["verb"])
        for entry in entries(tmp_path / "run" / "tape.jsonl", "commanded")
    ]
    assert told == [("operator", "pause"), ("ana", "stop")]


async def test_a_revoked_operator_commands_nothing_any_more(tmp_path: Path) -> None:
    async with lab(tmp_path / "run") as here:
        ana, ben = (here.invite(name, Invited.OPERATOR) for name in ("ana", "ben"))
        assert (await here.command(Verb.REVOKE, "ana", by=ben)).done
        with pytest.raises(RefusedError, match="the invitation of 'ana' was revoked"):
            await here.command(Verb.STOP, by=ana)
        assert (await here.command(Verb.PAUSE, by=ben)).done
        ana.unlink()
        assert (await here.command(Verb.RESUME, by=here.invite("ana", Invited.OPERATOR))).done


@pytest.mark.parametrize(
    ("mend", "told"),
    [
        (lambda text: text.rpartition(":")[0], "the invitation is cut off"),
        (
            lambda text: text.replace(":ana:", ":ben:"),
            "the invitation is damaged, or was made with",
        ),
        (lambda text: text.replace(":run:", ":ran:"), "the invitation is of another run"),
        (lambda text: f"{text[:-1]}{'0' if text[-1] != '0' else '1'}", "was not made for it with"),
        (lambda _: TOKEN, "the token is no operator's invitation"),
    ],
)
async def test_an_invitation_that_is_not_whole_is_told_of(
    mend: Callable[[str], str], told: str, tmp_path: Path
) -> None:
    async with lab(tmp_path / "run") as here:
        ana = here.invite("ana", Invited.OPERATOR)
        ana.write_text(mend(ana.read_text().strip()))
        try:
            answer = await here.command(Verb.STOP, by=ana)
        except (RefusedError, UserError) as error:
            assert told in str(error)  # noqa: PT017  who refuses it differs
        else:
            assert not answer.done
            assert told in answer.told


async def test_an_invitation_of_a_learner_sends_no_commands(tmp_path: Path) -> None:
    async with lab(tmp_path / "run") as here:
        ana = here.invite("ana", Invited.LEARNER)
        with pytest.raises(UserError, match="is a learner's, which sends no commands"):
            await here.command(Verb.STOP, by=ana)
        keyed = replace(here.operator(ana), key_file=here.hub.key_file)
        answer, _ = await ask(target_of(keyed), Verb.STOP, "", 1)
        assert "the invitation of 'ana' is a learner's, which sends no commands" in answer.told


# --- an overheard command -------------------------------------------------------------------------


@dataclass(slots=True)
class Eavesdropper:
    """Passes bytes on between operators and a hub, and keeps all that the operators sent."""

    port: int
    heard: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hub_reader, hub_writer = await asyncio.open_connection("127.0.0.1", self.port)
        number = len(self.heard)
        self.heard.append(b"")

        async def pass_on() -> None:
            while data := await hub_reader.read(1 << 16):
                writer.write(data)
            writer.close()

        answers = asyncio.create_task(pass_on())
        while data := await reader.read(1 << 16):
            self.heard[number] += data
            hub_writer.write(data)
        hub_writer.close()
        await answers

    @property
    def frames(self) -> list[bytes]:
        """The frames of all messages that were sent over control sockets, as they were sent."""
        return [frame for stream in self.heard for frame in frames_in(stream)]


def frames_in(stream: bytes) -> list[bytes]:
    """Unmask the websocket messages after an upgrade, and return those that carry an envelope."""
    data, found = stream.partition(b"\r\n\r\n")[2], []
    while len(data) > 6:
        size, at = data[1] & 127, 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
        key, body = data[at : at + 4], data[at + 4 : at + 4 + size]
        found.append(bytes(byte ^ key[index % 4] for index, byte in enumerate(body)))
        data = data[at + 4 + size :]
    return [frame for frame in found if frame[:2] == b"\x93\x00"]


async def test_an_overheard_command_is_of_no_use(tmp_path: Path) -> None:
    """Who has all the bytes of a command has the token, and sends the same bytes again."""
    async with lab(tmp_path / "run") as here:
        ear = Eavesdropper(here.hub.network.port)
        tap = await asyncio.start_server(ear.serve, "127.0.0.1", 0)
        where = f"127.0.0.1:{tap.sockets[0].getsockname()[1]}"
        mine = ConnectOptions(token_file=tmp_path / "token")
        options = OperatorOptions(tmp_path / "run", (where,), mine)
        assert (await tell(target_of(options), Verb.PAUSE, "", 1)).done
        assert (await here.command(Verb.RESUME)).done
        token = b"".join(ear.heard).partition(b"Authorization: Bearer ")[2].partition(b"\r\n")[0]
        Secret(token.decode()).write(tmp_path / "overheard")
        frame = ear.frames[-1]
        overheard = Assembler(Codec(MESSAGE_TYPES)).feed(frame)
        assert overheard is not None
        command = overheard.body
        assert isinstance(command, Command)
        assert command.signature
        network = network_of(ConnectOptions(), token=Secret(token.decode()))
        here.networks.append(network)
        for forged, told in (
            (command, "this command was sent before"),
            (replace(command, verb=Verb.STOP), "was not made for it"),
            (replace(command, verb=Verb.EVICT, target="learner-0"), "was not made for it"),
            (replace(command, count=2), "was not made for it"),
        ):
            link = await network.dial(f"ws://{where}/{SUPERVISOR}", local=OPERATOR)
            link.send(replace(overheard, body=forged))
            answer = await first(link, CommandAnswer)
            assert isinstance(answer, CommandAnswer)
            assert not answer.done
            assert told in answer.told
            assert (ear.frames[-1] == frame) is (forged == command), "the same bytes as before"
        core = here.hub.cluster.core
        assert core is not None
        assert (core.paused, core.stopping) == (False, None)
        tap.close()


# --- learners and observers -----------------------------------------------------------------------


@pytest.mark.parametrize("role", [Role.LEARNER, Role.OBSERVER])
async def test_a_revoked_guest_is_shown_out_and_nobody_else(role: Role, tmp_path: Path) -> None:
    async with lab(tmp_path / "run") as here:
        ana, ben = (here.invite(name, Invited(role.value)) for name in ("ana", "ben"))
        link, joined = await here.join(ana, "one", role)
        assert isinstance(joined, Joined)
        to_syncer = await here.dial(ana, "one", to="syncer")
        others = [await here.join(ben, "two", role), await here.join(tmp_path / "token", "three")]
        answer = await here.command(Verb.REVOKE, "ana")
        assert answer.told == "all invitations of 'ana' until now are revoked; evicted one"
        evicted = await first(link, Evicted)
        assert isinstance(evicted, Evicted)
        assert evicted.reason == "the invitation of 'ana' was revoked"
        refused = await first(link, Refused)
        assert isinstance(refused, Refused)
        assert not refused.retry
        for ended in (link, to_syncer):
            with pytest.raises(LinkClosed, match="the invitation of 'ana' was revoked"):
                await first(ended)
        with pytest.raises(DialDenied, match="refused: the invitation of 'ana' was revoked"):
            await here.dial(ana, "one")
        assert all(isinstance(word, Joined) and not other.closed for other, word in others)
    admitted = entries(tmp_path / "run" / "tape.jsonl", "admitted")
    by = {entry["name"]: entry.get("invited") for entry in admitted}
    assert {name: by[name] for name in ("one", "two", "three")} == {
        "one": "ana",
        "two": "ben",
        "three": None,
    }


async def test_a_revocation_outlives_the_hub(tmp_path: Path) -> None:
    async with lab(tmp_path / "run") as here:
        ana = here.invite("ana", Invited.LEARNER)
        answer = await here.command(Verb.REVOKE, "ana")
        assert "no member is here by one, so check the name" in answer.told
    async with lab(tmp_path / "run") as here:
        with pytest.raises(DialDenied, match="was revoked"):
            await here.dial(ana, "one")
        link, _ = await here.join(here.invite("ana", Invited.LEARNER), "one")
        assert not link.closed


async def test_a_folder_that_is_full_is_told_of_by_a_revocation(tmp_path: Path) -> None:
    async with lab(tmp_path / "run") as here:
        ana = here.invite("ana", Invited.LEARNER)
        (tmp_path / "run" / f".{REVOKED_FILE}.new").mkdir()
        answer = await here.command(Verb.REVOKE, "ana")
        assert not answer.done
        assert "revoked.json cannot be written" in answer.told
        with pytest.raises(DialDenied, match="was revoked"):
            await here.dial(ana, "one")


@pytest.mark.parametrize("text", ["", "{", '{"revoked":{}}'])
def test_damaged_revocations_admit_nobody(text: str, tmp_path: Path) -> None:
    (tmp_path / REVOKED_FILE).write_text(text)
    with pytest.raises(UserError, match=r"revoked\.json is damaged, so it is not known whose"):
        read_revoked(tmp_path)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"{")])
def test_damaged_revocations_are_those_of_their_copy(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    invitations = Invitations("run", Credentials("run", b"a key for the tests alone"))
    assert revoke(invitations, tmp_path, "ana")[1] == ""
    damage(tmp_path / REVOKED_FILE)
    assert read_revoked(tmp_path) == invitations.revoked != {}


@pytest.mark.parametrize(
    ("name", "days", "told"),
    [
        ("ana", 0, "days is 0"),
        ("ana", 100_000, "days is 100000"),
        ("", 30, "name is ''; it must be"),
        ("a b", 30, "name is 'a b'; it must be"),
        ("../ana", 30, "it must be"),
        ("n" * 65, 30, "it must be 1 to 64 letters"),
        ("operator", 30, "name is 'operator', which is reserved"),
    ],
)
def test_who_cannot_be_invited_is_told_why(name: str, days: int, told: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=told):
        InviteOptions(name, Invited.LEARNER, days, tmp_path)


async def test_an_invitation_is_not_written_over(tmp_path: Path) -> None:
    async with lab(tmp_path / "run") as here:
        ana = here.invite("ana", Invited.LEARNER)
        assert ana.stat().st_mode & 0o077 == 0
        with pytest.raises(LocalFault, match="is there already"):
            invite.run(InviteOptions("ana", Invited.LEARNER, 30, tmp_path / "run", ana), Common())


async def test_revoked_processes_end_with_a_sentence_also_where_the_syncer_is_another(
    tmp_path: Path,
) -> None:
    config = write_config(tmp_path / "run.yaml", learners=1)
    async with open_room(tmp_path) as room:
        room.start("islands.cli", "run", config, "--folder", "run")
        address = await room.wait(lambda: hub_address(tmp_path / "run"))
        await room.wait(lambda: merges(tmp_path / "run") > 2)
        for role in ("learner", "observer"):
            out = ("--out", f"{role}.invitation", "--folder", "run")
            made = await room.run("islands.cli", "invite", "ana", "--role", role, *out)
            assert made.process.returncode == 0, made
        shown = ("--supervisor", address, "--name", "guest", "--token_file")
        learner = room.start("islands.learner", *shown, "learner.invitation")
        await room.wait(lambda: len(admitted_by(tmp_path / "run", "ana")) == 1)
        other = ("--supervisor", address, "--name", "eye", "--token_file", "observer.invitation")
        observer = room.start("islands.observer", *other)
        await room.wait(lambda: "tokens: " in observer.err)
        told = await control(room, "revoke", "ana")
        assert "evicted guest, eye" in told.out
        for program in (learner, observer):
            assert await room.ended(program) == 2
            assert "refused: the invitation of 'ana' was revoked" in program.err
        again = room.start("islands.learner", *shown, "learner.invitation", "--wait_s", 5)
        assert await room.ended(again) == 2
        assert "refused: the invitation of 'ana' was revoked" in again.err
        await control(room, "stop")


def admitted_by(folder: Path, person: str) -> list[object]:
    return [
        one for one in entries(folder / "tape.jsonl", "admitted") if one.get("invited") == person
    ]
