"""Hostile peers with the token for `tests.benchmarks.hostile`, in a world of honest actors."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Unpack

import msgspec

from islands.lab.toys.toy import NumpyTrainer, ToyOptions
from islands.lab.world.world import LearnerHost, NumpyTrainers, World
from islands.protocol.identities import (
    SUPERVISOR,
    SYNCER,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Ticket,
    Version,
)
from islands.protocol.messages import training
from islands.protocol.messages.control import Verb
from islands.protocol.messages.gossip import GOSSIP_TYPES, PeerHello
from islands.protocol.messages.membership import (
    Evicted,
    Heartbeat,
    Join,
    Joined,
    Member,
    MembershipChanged,
)
from islands.protocol.messages.registry import MESSAGE_TYPES, PROTOCOL
from islands.protocol.settings.choices import MergeRule, Neighbours, Weighting
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.entry import Entry, encode_entry
from islands.settings.wire_limits import limits_of
from islands.syncer.journal import encode
from messaging.codec.frames import Codec
from messaging.envelope import Envelope
from messaging.errors import DialFailed, EncodeError, FrameError, LinkClosed
from messaging.links.link import Lane
from messaging.links.memory_link import MemoryLink
from tests.benchmarks.drawn_messages import damaged, drawn
from tests.benchmarks.hostile_trial import Trial
from tests.messaging.doubles import decoded

EVE = LearnerName("eve")
HONEST = ("ana", "ben")
BURST = 32
"""Inputs in each tenth of a virtual second."""

BATCH = 8
BUDGET_TOKENS = 1_000_000
DAMAGED_SHARE = 0.1
HONEST_REPORTS = 0.2
FATAL = ("Leave", "Join", "Hello", "PeerHello")
FATAL_SHARE = 0.05
"""How often a message is said that may end the own session or incarnation, if it is drawn."""

LEAVES = tuple((f"leaves/{number}", (4,)) for number in range(2000))
"""The layout for which a single type of message is tried alone."""

NAMES = tuple(LearnerName(f"eve-{number}") for number in range(250))
"""Further names under which she says it."""

DRAWS = 8
"""Messages of a type of which she says the largest."""

GONE = (LinkClosed, DialFailed, TimeoutError)


class ManyLeaves(NumpyTrainer):
    """A toy whose layout has as many leaves as that of a large model."""

    def __init__(self, fragments: int, **options: Unpack[ToyOptions]) -> None:
        options["shapes"] = LEAVES
        super().__init__(fragments, **options)


def types_of(kind: str) -> Sequence[type]:
    """Return the types of messages that a kind of peer can say, and that are tried alone."""
    match kind:
        case "stranger" | "viewer" | "island":
            return ()
        case "gossip":
            return (*MESSAGE_TYPES, *PEER_TYPES)
        case _:
            return MESSAGE_TYPES


class Counting:
    """A tape that keeps nothing but sizes, and who honest was evicted."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.evicted: list[str] = []

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        self.size_bytes += len(encode_entry(at_s, actor, entry)) + 1
        name = getattr(entry, "name", "")
        if entry.kind in ("evicted", "wrong_report") and name in HONEST:
            self.evicted.append(f"{name} at {at_s:.1f} s")


def settings_of(kind: str) -> RunSettings:
    if kind != "gossip":
        return RunSettings(interval_steps=6, fragments=3, budget_tokens=BUDGET_TOKENS)
    return RunSettings(
        interval_steps=6,
        fragments=3,
        merge=MergeRule.AVERAGE,
        weighting=Weighting.UNIFORM,
        gossip=GossipSettings(Neighbours.RING),
        budget_tokens=BUDGET_TOKENS,
    )


class Members:
    """Eve, in a world of two honest learners.

    With the token alone she may say everything, and is never admitted. If she is admitted she comes
    back under another incarnation as often as hers ends. In gossip she talks to a learner, too.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._tape = Counting()
        settings = settings_of(trial.kind)
        self._world = World(
            settings,
            {name: LearnerHost(momentum=0.0) for name in HONEST},
            seed=trial.seed,
            tape=self._tape,
            figures=lambda _, __: None,
            trainers=NumpyTrainers(settings, kind=ManyLeaves) if trial.only else None,
        )
        limits = limits_of(self._world.layout)
        self._codec = Codec(MESSAGE_TYPES, limits)
        self._world.network.measure = self._measure
        self._sizes = [fragment.size * 4 for fragment in self._world.layout.fragments]
        self._links: dict[str, MemoryLink] = {}
        self._reading: list[asyncio.Task[None]] = []
        self._joined: Joined | None = None
        self._member: Member | None = None
        self._incarnation = Incarnation(1, 999)
        self._credential = ""
        self._steps = 0
        self._quota = 0
        self._told = 0
        self._expected: dict[str, Sequence[object]] = {}
        self._expect()

    def _measure(self, envelope: Envelope) -> int:
        """Return the size on a real socket, which knows it without encoding again."""
        with self._trial.own():
            return self._codec.size_bytes(envelope)

    # --- a trial ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Attack, have the run stopped by an operator, and attack on until it has ended."""
        trial, world = self._trial, self._world
        world.start_all()
        async with asyncio.timeout(60):
            while world.syncer_state is None or not world.syncer_state.core.seeded:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await self._come()
        tape_bytes, record_bytes = self._tape.size_bytes, self._record_bytes()
        trial.begin()
        said = 0
        while said < trial.inputs:
            await self._come()
            with trial.own():
                for _ in range(min(BURST, trial.inputs - said)):
                    self._say_something()
                    said += 1
            await asyncio.sleep(0.1)
            trial.look()
        trial.measuring = False
        grown = self._tape.size_bytes - tape_bytes + self._record_bytes() - record_bytes
        trial.stored_bytes = grown
        began_s = asyncio.get_running_loop().time()
        await world.command(Verb.STOP)
        while world.finished is None and not world.failures:
            await self._come()
            self._say_something()
            await asyncio.sleep(0.1)
        trial.end_s = asyncio.get_running_loop().time() - began_s
        trial.problems += [f"{name} failed: {error!r}" for name, error in world.failures]
        trial.problems += [f"{name} was evicted" for name in self._tape.evicted]
        for task in self._reading:
            task.cancel()

    def _record_bytes(self) -> int:
        state = self._world.syncer_state
        return 0 if state is None else len(encode(state.durable))

    # --- coming -------------------------------------------------------------------------------

    async def _come(self) -> None:
        with suppress(*GONE):
            async with asyncio.timeout(5):
                if self._open(SUPERVISOR) is None:
                    await self._dial(SUPERVISOR)
                if self._trial.kind == "token":
                    if self._open(SYNCER) is None:
                        await self._dial(SYNCER)
                    return
                await self._join()
                if self._open(SYNCER) is None:
                    await self._dial(SYNCER)
                    self._say(SYNCER, self._hello())
                if self._trial.kind == "gossip":
                    await self._meet()

    async def _join(self) -> None:
        while self._joined is None:  # until she is admitted, or the time is over
            fingerprint = self._world.layout.fingerprint
            run = self._world.settings.run
            join = Join(PROTOCOL, run, Role.LEARNER, EVE, fingerprint, address=EVE)
            if self._credential:
                join = replace(join, previous=self._incarnation, credential=self._credential)
            self._say(SUPERVISOR, join)
            await asyncio.sleep(0.1)
        beat = Heartbeat(
            *(Role.LEARNER, EVE, self._incarnation, Phase.STEPPING, self._steps),
            credential=self._joined.credential,
            address=EVE,
        )
        self._say(SUPERVISOR, beat)

    async def _meet(self) -> None:
        """Greet a learner with the proof that the supervisor told."""
        member = self._member
        if self._open("peer") is None and member is not None and member.address is not None:
            await self._dial(member.address, "peer")
            self._say("peer", PeerHello(EVE, self._incarnation, member.proof))

    async def _dial(self, address: str, called: str = "") -> None:
        link = await self._world.network.dial(address, local=EVE)
        self._links[called or address] = link
        self._reading = [task for task in self._reading if not task.done()]
        self._reading.append(asyncio.create_task(self._read(link)))

    def _open(self, name: str) -> MemoryLink | None:
        link = self._links.get(name)
        return None if link is None or link.closed else link

    # --- hearing ------------------------------------------------------------------------------

    async def _read(self, link: MemoryLink) -> None:
        with suppress(LinkClosed):
            while True:  # until the session ends
                body = (await link.receive()).body
                size_bytes = link.bytes_received
                if self._trial.measuring:
                    self._trial.bytes_sent += size_bytes
                link.bytes_received = 0
                self._hear(body)

    def _hear(self, body: object) -> None:
        trial = self._trial
        match body:
            case Joined():
                self._joined, self._incarnation = body, body.incarnation
                self._credential, self._member = body.credential, None
                self._steps = self._quota = 0
                self._expect()
            case Evicted(_, incarnation) if incarnation == self._incarnation:
                self._joined = None
            case training.Welcome():
                self._expected["version"] = self._expected["base"] = [
                    version for version in body.versions if version is not None
                ] or [Version(1, 0)]
            case training.LeaseGranted():
                self._quota = body.quota_tokens
                trial.granted_tokens = max(
                    trial.granted_tokens, body.quota_tokens - self._steps * BATCH
                )
            case training.PullFragment():
                self._expected["ticket"] = [body.ticket]
                self._expected["fragment"] = [body.fragment]
            case MembershipChanged():
                found = [member for member in body.members if member.name in HONEST]
                self._member = next((member for member in found if member.proof), self._member)
            case _:
                pass
        if trial.kind == "token" and isinstance(
            body, Joined | training.Welcome | training.LeaseGranted
        ):
            trial.problems.append(f"a peer without an admission was told {body!r}")

    # --- saying -------------------------------------------------------------------------------

    def _expect(self) -> None:
        admitted = self._trial.kind != "token"
        credential = self._joined.credential if self._joined is not None else "forged"
        fragments = range(len(self._sizes))
        incarnation = self._incarnation
        self._expected |= {
            "name": [*(EVE for _ in NAMES), *NAMES] if self._trial.only else [EVE],
            "incarnation": [incarnation],
            "role": [Role.LEARNER],
            "credential": [credential],
            "protocol": [PROTOCOL],
            "run": [self._world.settings.run],
            "fingerprint": [self._world.layout.fingerprint if admitted else "0" * 32],
            "epoch": [1],
            "rank": [1],
            "fragment": [FragmentIndex(index) for index in fragments],
            "phase": [Phase.STEPPING, Phase.STEPPING, *Phase],
            "ticket": [Ticket(1, number, EVE, incarnation) for number in range(4)],
            "address": [None, EVE],
            "verb": [Verb.STATUS, *Verb],
        }

    def _say_something(self) -> None:
        """Say one drawn message, or an honest report, so that she has something to lie about."""
        trial, chance = self._trial, self._trial.chance
        if trial.only is not None:
            self._say(self._path_of(trial.only), self._largest(trial.only))
            return
        link = chance.choice([name for name in self._links if self._open(name)] or [""])
        if trial.kind not in ("token", "gossip") and chance.random() < HONEST_REPORTS:
            self._steps += self._steps * BATCH + BATCH <= self._quota
            self._say(SYNCER, self._progress())
            return
        types: Sequence[type] = MESSAGE_TYPES
        if link == "peer":
            types = PEER_TYPES
        kind = chance.choice(types)
        if kind.__name__ in FATAL and chance.random() > FATAL_SHARE:
            return
        self._say(link, self._drawn(kind), chance.choice(("", "ana", SYNCER)))

    def _path_of(self, kind: type) -> str:
        if self._trial.kind == "gossip" and kind in PEER_TYPES:
            return "peer"
        return self._trial.chance.choice((SUPERVISOR, SYNCER))

    def _largest(self, kind: type) -> object:
        """Return the largest of some messages of one type that a receiver would decode."""
        return max((self._drawn(kind) for _ in range(DRAWS)), key=self._size)

    def _size(self, body: object) -> int:
        with suppress(EncodeError, OverflowError, FrameError):
            payload = self._payload(body) if isinstance(body, BULK) else ()
            document = self._codec.encode(Envelope(EVE, SYNCER, 1, body, payload=payload))
            decoded(self._codec, document, payload)
            return len(document)
        return 0

    def _drawn(self, kind: type) -> object:
        chance = self._trial.chance
        if kind is training.Contribution or kind is training.Progress:
            self._expected |= {
                "steps": [self._steps],
                "tokens": [self._steps * BATCH],
                "processed_tokens": [self._steps * BATCH],
                "batch_tokens": [BATCH],
                "step_time_s": [0.1],
                "fragments": [self._progress().fragments],
                "leases": [()],
            }
        return drawn(kind, chance, self._expected)

    def _say(self, name: str, body: object, recipient: str = "") -> None:
        """Say a message as it would come over a socket: encoded, perhaps damaged, and decoded."""
        link, trial = self._open(name), self._trial
        if link is None:
            return
        self._told += 1
        envelope = Envelope(EVE, recipient or link.remote, self._told, body)
        with suppress(EncodeError, OverflowError):
            payload = self._payload(body) if isinstance(body, BULK) else ()
            whole = Envelope(EVE, envelope.recipient, self._told, body, payload=payload)
            document = self._codec.encode(whole)
            if trial.measuring and trial.chance.random() < DAMAGED_SHARE:
                document = damaged(document, trial.chance)
            trial.types[type(body).__name__] += trial.measuring
            try:
                with trial.theirs():
                    arrived = decoded(self._codec, document, payload)
            except FrameError:
                return  # a socket would end the session; here it goes on
            link.send(arrived, Lane.BULK if payload else Lane.CONTROL)

    def _payload(self, body: object) -> tuple[memoryview, ...]:
        chance = self._trial.chance
        fragment = getattr(body, "fragment", 0)
        right = self._sizes[fragment] if 0 <= fragment < len(self._sizes) else 8
        size = chance.choice((right, right, right, 0, 8, 4096))
        parts = chance.choice((1, 2, 2)) if self._trial.kind == "gossip" else 1
        return tuple(memoryview(chance.randbytes(size)) for _ in range(parts))

    def _progress(self) -> training.Progress:
        told = training.FragmentProgress(None, 0, 0, 0)
        versions: Sequence[Any] = self._expected.get("version", ())
        if versions and self._steps:
            told = msgspec.structs.replace(told, version=versions[0])
        return training.Progress(
            *(EVE, self._incarnation, Phase.STEPPING, self._steps, self._steps * BATCH),
            *(0.1, BATCH, self._quota, (told,) * len(self._sizes), ()),
        )

    def _hello(self) -> training.Hello:
        return training.Hello(
            *(PROTOCOL, self._world.settings.run, Role.LEARNER, EVE, self._incarnation),
            *(self._credential, self._world.layout.fingerprint),
            replace(self._progress(), phase=Phase.HEALING),
            ("",) * len(self._sizes),
        )


PEER_TYPES: Sequence[type] = (*GOSSIP_TYPES, PeerHello)
BULK = tuple(
    kind
    for kind in MESSAGE_TYPES
    if "payload" in (kind.__doc__ or "") and kind.__name__ != "FragmentProgress"
)
"""The messages whose docstring says that they carry a payload."""
