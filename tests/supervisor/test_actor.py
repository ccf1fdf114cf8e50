"""The supervisor's actor: who is told what, and whose word counts for whom."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from islands.actors.epochs import newest_epoch
from islands.actors.role_actor import READ_AT_ONCE, ROOM, Context
from islands.files.disk import RealDisk
from islands.files.slots import Slots
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.protocol.identities import OPERATOR, Incarnation, LearnerName, Phase, Role, Status
from islands.protocol.invitations import signed, signing_secret
from islands.protocol.membership import Credentials
from islands.protocol.messages import membership as messages
from islands.protocol.messages.control import (
    Command,
    CommandAnswer,
    Note,
    RunEnded,
    StepFigures,
    Verb,
)
from islands.protocol.messages.membership import (
    ASKS_AGAIN_S,
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Leave,
    Refused,
    RunSpecReply,
    RunSpecRequest,
)
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor.memory import MESSAGES
from islands.supervisor.actor import NOTES_PER_S, Hooks, SupervisorActor
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.link import Link
from messaging.links.memory_link import MemoryNetwork
from tests.syncer.actor_bench import last_words
from tests.virtual import beside, virtual

T = TypeVar("T")

LAYOUT = NumpyTrainer(2).layout
JOIN = Join(PROTOCOL, "run", Role.LEARNER, "ana", LAYOUT.fingerprint)
FIGURES = StepFigures("p", 1, 8, 0.1, 0.1, 2.0, 0.0, 0.0, (), 0.0, 1, 1)


class Hub:
    """A supervisor that runs, and what it handed on."""

    def __init__(self, folder: Path, *, spec: tuple[str, memoryview] | None) -> None:
        self.network = MemoryNetwork()
        self.credentials = Credentials("run", b"a key for the tests alone")
        self.noted: list[tuple[str, str]] = []
        self.figures: list[tuple[str, int]] = []
        self.ended: list[tuple[str, bytes]] = []
        self.tape = MemoryTape()
        self.broken = ""
        self.actor = SupervisorActor(
            "supervisor",
            Context(RunSettings(), LAYOUT, self.network, self.tape),
            disk=RealDisk(folder),
            credentials=self.credentials,
            spec=spec,
            hooks=Hooks(
                noted=lambda name, _, note: self._keep("noted", (name, note.kind)),
                figures=lambda name, figures: self._keep("figures", (name, figures.steps)),
                run_ended=lambda reason, share: self.ended.append((reason, share)),
            ),
        )
        self._sent = 0

    def _keep(self, what: str, told: object) -> None:
        if what == self.broken:
            raise OverflowError("too large")
        getattr(self, what).append(told)

    @property
    def kept_shares(self) -> int:
        """Bytes that the supervisor keeps of what links told of the run's end."""
        return sum(len(part) for part in self.actor._summaries.values())  # noqa: SLF001

    async def dial(self, name: str) -> Link:
        return await self.network.dial("supervisor", local=name)

    def say(self, link: Link, body: object, *payload: bytes) -> None:
        self._sent += 1
        parts = tuple(memoryview(part) for part in payload)
        link.send(Envelope(link.local, link.remote, self._sent, body, payload=parts))

    async def hear(self, link: Link, kind: type[T]) -> tuple[T, Envelope]:
        while True:  # until it is among what comes
            envelope = await link.receive()
            if isinstance(envelope.body, kind):
                return envelope.body, envelope

    async def ask(self, link: Link, command: Command) -> CommandAnswer:
        self.say(link, command)
        return (await self.hear(link, CommandAnswer))[0]

    async def nonce(self, link: Link) -> str:
        return (await self.ask(link, Command(Verb.STATUS))).nonce

    async def admit(self, name: str, role: Role = Role.LEARNER) -> tuple[Link, Joined]:
        link = await self.dial(name)
        proof = self.credentials.prove(name) if role is Role.SYNCER else ""
        self.say(link, replace(JOIN, role=role, name=name, proof=proof))
        joined, _ = await self.hear(link, Joined)
        return link, joined


def beat(joined: Joined) -> Heartbeat:
    held, credential = joined.incarnation, joined.credential
    return Heartbeat(Role.LEARNER, "ana", held, Phase.STEPPING, 9, credential)


@asynccontextmanager
async def open_hub(
    folder: Path, *, spec: tuple[str, memoryview] | None = None
) -> AsyncIterator[Hub]:
    """A supervisor that runs beside a test."""
    hub = Hub(folder, spec=spec)
    async with beside(hub.actor):
        await asyncio.sleep(0.01)  # it listens from now on
        yield hub


async def settle(hub: Hub, link: Link) -> None:
    hub.say(link, RunSpecRequest(PROTOCOL, Role.OBSERVER, "x"))
    while not isinstance((await link.receive()).body, RunSpecReply | Refused):
        pass


@virtual
async def test_who_asks_is_told_spec_and_plan(tmp_path: Path) -> None:
    async with open_hub(tmp_path, spec=("{spec}", memoryview(b"plan"))) as hub:
        link = await hub.dial("ana")
        hub.say(link, RunSpecRequest(PROTOCOL, Role.LEARNER, "ana"))
        told, envelope = await hub.hear(link, RunSpecReply)
        assert told == RunSpecReply("run", "{spec}", 1, hub.credentials.prove_supervisor(1))
        assert [bytes(part) for part in envelope.payload] == [b"plan"]


@virtual
async def test_a_supervisor_that_was_told_nothing_says_so(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        link = await hub.dial("ana")
        hub.say(link, RunSpecRequest(PROTOCOL, Role.LEARNER, "ana"))
        refused, _ = await hub.hear(link, Refused)
        assert "cannot tell what its run is" in refused.reason
        assert not refused.retry


@pytest.mark.parametrize("characters", [300, 60_000])
@virtual
async def test_a_name_that_fills_a_frame_ends_its_link_and_not_the_hub(
    tmp_path: Path, characters: int
) -> None:
    async with open_hub(tmp_path) as hub:
        link = await hub.dial("eve")
        hub.say(link, replace(JOIN, name="\0" * characters))
        with pytest.raises(LinkClosed, match="at most 256 are allowed"):
            await link.receive()
        await hub.admit("ana")


@virtual
async def test_notes_and_figures_are_of_whoever_was_admitted_on_the_link(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        link = await hub.dial("somebody")
        hub.say(link, Note("started", "{}"))
        hub.say(link, FIGURES)
        hub.say(link, JOIN)
        await hub.hear(link, Joined)
        hub.say(link, Note("exit", "{}"))
        hub.say(link, FIGURES)
        await settle(hub, link)
        assert hub.noted == [("ana", "started"), ("ana", "exit")]
        assert hub.figures == [("ana", 1)]


@virtual
async def test_a_learner_that_notes_without_end_fills_no_disk(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        link, _ = await hub.admit("ana")
        for _ in range(200):
            hub.say(link, Note("exit", "{}"))
        await settle(hub, link)
        assert 0 < len(hub.noted) <= 2 * NOTES_PER_S


@virtual
async def test_figures_of_a_process_end_with_its_incarnation(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        cut_off, joined = await hub.admit("ana")
        hub.say(cut_off, FIGURES)
        await settle(hub, cut_off)
        successor = await hub.dial("ana")
        proof = joined.credential
        hub.say(successor, replace(JOIN, previous=joined.incarnation, credential=proof))
        await hub.hear(successor, Joined)
        hub.say(cut_off, replace(FIGURES, steps=2))
        await settle(hub, cut_off)
        hub.say(successor, replace(FIGURES, process="q", steps=3))
        await settle(hub, successor)
        assert hub.figures == [("ana", 1), ("ana", 3)]


@virtual
async def test_a_refused_process_notes_nothing(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        _, joined = await hub.admit("ana")
        other = await hub.dial("ana")
        hub.say(other, JOIN)
        hub.say(other, replace(beat(joined), credential="forged"))
        hub.say(other, Note("exit", "{}"))
        hub.say(other, Leave(LearnerName("ana"), joined.incarnation, "not me"))
        await settle(hub, other)
        assert not hub.noted
        assert hub.actor.state.members["ana"].status is Status.LIVE
        assert hub.actor.state.members["ana"].step == 0


@pytest.mark.parametrize("begun", ["another beginning", ""])
@virtual
async def test_only_members_of_this_beginning_end_a_supervisor(tmp_path: Path, begun: str) -> None:
    key = b"a key for the tests alone"
    earlier = Credentials("run", key, begun)
    held = Incarnation(9, 1)
    beat = Heartbeat(
        *(Role.LEARNER, "ana", held, Phase.STEPPING, 9, earlier.sign("ana", held)),
        supervisor_epoch=9,
        supervisor_proof=earlier.prove_supervisor(9),
    )
    shown = replace(JOIN, previous=held, credential=earlier.sign("ana", held))

    if begun:
        async with open_hub(tmp_path) as hub:
            link = await hub.dial("ana")
            for said in (beat, shown):
                hub.say(link, said)
                told, _ = await hub.hear(link, Evicted)
                assert (told.name, told.incarnation, told.unknown) == ("ana", held, True)
            joined, _ = await hub.hear(link, Joined)
            assert joined.supervisor_epoch == 1
    else:  # that is this hub's own

        async def ends() -> None:
            async with open_hub(tmp_path) as hub:
                link = await hub.dial("ana")
                hub.say(link, beat)
                await last_words(link)

        with pytest.raises(AssertionError):
            await ends()
        assert newest_epoch(Slots(RealDisk(tmp_path))) == 9


@virtual
async def test_a_genuine_heartbeat_names_a_link(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        first, joined = await hub.admit("ana")
        first.close("lost")
        link = await hub.dial("ana")
        hub.say(link, Note("exit", "{}"))
        hub.say(link, beat(joined))
        hub.say(link, FIGURES)
        await hub.hear(link, HeartbeatAck)
        hub.say(link, Leave(LearnerName("ana"), joined.incarnation, "drained"))
        await settle(hub, link)
        assert hub.noted == [("ana", "exit")]
        assert hub.figures == [("ana", 1)]
        assert hub.actor.state.members["ana"].status is Status.LEFT


@virtual
async def test_the_end_comes_with_the_syncers_share_and_is_answered(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        syncer, _ = await hub.admit("syncer", Role.SYNCER)
        learner, _ = await hub.admit("ana")
        hub.say(syncer, RunEnded("tokens"), b'{"tokens": 7}')
        for link in (syncer, learner):
            stop, _ = await hub.hear(link, messages.Stop)
            assert stop.reason == "tokens"

    assert hub.ended == [("tokens", b'{"tokens": 7}')]
    assert hub.actor.state.finished == "tokens"


@virtual
async def test_the_supervisor_stays_for_those_who_wait_to_take_part(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        question = RunSpecRequest(PROTOCOL, Role.LEARNER, "away")
        hub.say(await hub.dial("away"), question)
        syncer, _ = await hub.admit("syncer", Role.SYNCER)
        hub.say(syncer, RunEnded("tokens"), b"{}")
        await hub.hear(syncer, messages.Stop)
        await asyncio.sleep(ASKS_AGAIN_S)
        link = await hub.dial("away")
        hub.say(link, question)
        refused, _ = await hub.hear(link, Refused)
        assert refused.reason == f"{messages.RUN_OVER}: tokens"
        assert not hub.actor.ref.stopped
        await asyncio.sleep(ASKS_AGAIN_S)
        assert hub.actor.ref.stopped


@pytest.mark.parametrize("member", [True, False])
@virtual
async def test_nobody_but_a_syncer_ends_the_run(tmp_path: Path, *, member: bool) -> None:
    async with open_hub(tmp_path) as hub:
        link = (await hub.admit("ana"))[0] if member else await hub.dial("stranger")
        hub.say(link, RunEnded("enough"), bytes(1 << 20))
        await settle(hub, link)
        assert hub.actor.state.finished is None
        assert not hub.ended
        assert not hub.kept_shares


@pytest.mark.parametrize("key", [b"a key for the tests alone", b"another key of this length"])
@virtual
async def test_a_command_needs_the_runs_key(tmp_path: Path, key: bytes) -> None:
    async with open_hub(tmp_path) as hub:
        secret = signing_secret(Credentials("run", key))
        link = await hub.dial(OPERATOR)
        answer = await hub.ask(link, signed(Command(Verb.STATUS), await hub.nonce(link), secret))
        assert answer.done is (key == b"a key for the tests alone")


@pytest.mark.parametrize(
    "other",
    [
        {"verb": Verb.STOP},
        {"target": "ben"},
        {"target": "an", "count": 11},
        {"count": 2},
        {"nonce": "another one"},
        {"signature": ""},
    ],
)
@virtual
async def test_a_signature_fits_the_command_that_it_was_made_for_alone(
    tmp_path: Path, other: dict[str, object]
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.admit("ana")
        link, secret = await hub.dial(OPERATOR), signing_secret(hub.credentials)
        drain = signed(Command(Verb.DRAIN, "ana"), await hub.nonce(link), secret)
        nonce = other.get("nonce") and await hub.nonce(link)
        forged = replace(drain, **(other | ({"nonce": nonce} if nonce else {})))  # type: ignore[arg-type]
        answer = await hub.ask(link, forged)
        assert not answer.done
        assert "was not made for it with the run's key" in answer.told
        assert hub.actor.state.memory.stopping is None
        assert not hub.actor.state.memory.drained
        assert (await hub.ask(link, drain)).done


@virtual
async def test_a_command_of_an_earlier_start_is_of_no_use(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        link, secret = await hub.dial(OPERATOR), signing_secret(hub.credentials)
        kept = signed(Command(Verb.PAUSE), await hub.nonce(link), secret)
    async with open_hub(tmp_path) as hub:
        link = await hub.dial(OPERATOR)
        answer = await hub.ask(link, kept)
        assert not answer.done
        assert "signed for another start of the hub" in answer.told
        assert (await hub.ask(link, signed(kept, answer.nonce, secret))).done


@virtual
async def test_a_name_is_given_up_only_to_the_credential_of_its_incarnation(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        _, joined = await hub.admit("ana")
        mallory = await hub.dial("mallory")
        for counter in range(1, 4):
            guess = Incarnation(joined.incarnation.epoch, counter)
            hub.say(mallory, replace(JOIN, previous=guess, credential="guessed"))
            refused, _ = await hub.hear(mallory, Refused)
            assert "taken by a live learner" in refused.reason
        assert hub.actor.state.members["ana"].incarnation == joined.incarnation
        again = await hub.dial("ana")
        proof = joined.credential
        hub.say(again, replace(JOIN, previous=joined.incarnation, credential=proof))
        assert (await hub.hear(again, Joined))[0].incarnation > joined.incarnation


@virtual
async def test_a_claim_of_a_newer_supervisor_ends_nothing_without_its_proof(tmp_path: Path) -> None:
    """A member that lies could otherwise end the run; its own supervisor's proof is no such one."""
    async with open_hub(tmp_path) as hub:
        link, joined = await hub.admit("ana")
        assert joined.supervisor_proof == hub.credentials.prove_supervisor(1)
        word = replace(beat(joined), supervisor_epoch=9)
        for proof in ("", joined.supervisor_proof, hub.credentials.prove_epoch(9, "start")):
            hub.say(link, replace(word, supervisor_proof=proof))
            ack, _ = await hub.hear(link, HeartbeatAck)
            assert ack == HeartbeatAck(1, (), joined.supervisor_proof)


@virtual
async def test_a_link_that_speaks_for_two_names_is_ended(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        link, _ = await hub.admit("ana")
        for number in range(254):
            hub.say(link, replace(JOIN, name=f"name-{number}"))
        await last_words(link)
        assert list(hub.actor.state.members) == ["ana"]
        assert hub.actor.mailbox.high_water < 10


@virtual
async def test_what_no_check_foresaw_ends_its_sender_and_not_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("forgotten")

    async with open_hub(tmp_path) as hub:
        other, _ = await hub.admit("ben")
        monkeypatch.setattr(MESSAGES, "handle", fail)
        link = await hub.dial("ana")
        hub.say(link, RunSpecRequest(PROTOCOL, Role.LEARNER, "ana"))
        await last_words(link)
        monkeypatch.undo()
        await settle(hub, other)
        assert any(b"KeyError('forgotten')" in line for line in hub.tape.lines)


@pytest.mark.parametrize("what", ["figures", "noted"])
@virtual
async def test_what_cannot_be_kept_ends_its_sender_and_not_the_supervisor(
    tmp_path: Path, what: str
) -> None:
    async with open_hub(tmp_path) as hub:
        other, _ = await hub.admit("ben")
        hub.broken = what
        link, _ = await hub.admit("ana")
        hub.say(link, FIGURES if what == "figures" else Note("exit", "{}"))
        await last_words(link)
        await settle(hub, other)
        assert any(b"cannot be kept: OverflowError" in line for line in hub.tape.lines)


@virtual
async def test_notes_of_who_has_yet_to_be_admitted_are_bounded_in_size(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        link = await hub.dial("ana")
        hub.say(link, Note("exit", '{"reason": "' + "x" * 5000 + '"}'))
        hub.say(link, Note("started", "{}"))
        hub.say(link, JOIN)
        await hub.hear(link, Joined)
        assert hub.noted == [("ana", "started")]


@virtual
async def test_a_crowd_that_speaks_at_once_is_slowed_down_and_heard(tmp_path: Path) -> None:
    async with open_hub(tmp_path, spec=("{}", memoryview(b"{}"))) as hub:
        links = []
        for index in range(400):
            links.append(await hub.dial(f"n{index}"))
            await asyncio.sleep(0)  # so many sessions may not wait to be accepted
        for link in links:
            for number in range(READ_AT_ONCE):
                hub.say(link, RunSpecRequest(PROTOCOL, Role.LEARNER, f"{number}"))
        for link in links:
            heard = [(await link.receive()).body for _ in range(READ_AT_ONCE)]
            assert len([body for body in heard if isinstance(body, RunSpecReply)]) == 1
        assert hub.actor.mailbox.high_water <= ROOM
        assert not hub.actor.ref.stopped
