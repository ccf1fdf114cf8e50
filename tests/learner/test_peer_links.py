"""Links between learners: who may say something, and which links are kept."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from islands.actors.role_actor import Context, RoleActor
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.learner.peer_links import LINKS_MAX, PeerLinks
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Status
from islands.protocol.messages.gossip import PeerHello, ValueWanted
from islands.protocol.messages.membership import Member
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.protocol.settings.run import RunSettings
from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed
from messaging.links.memory_link import MemoryNetwork
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Keyring, Secret
from tests.virtual import virtual

SETTINGS = RunSettings()
LAYOUT = NumpyTrainer().layout
WORD = ValueWanted(FragmentIndex(0), Incarnation(1, 1))


class Node(RoleActor[object]):
    """A process that has nothing but links."""

    def __init__(self, network: MemoryNetwork, name: str, number: int, *, hub: str = "hub") -> None:
        super().__init__(name, Context(SETTINGS, LAYOUT, network, MemoryTape(), hub))
        self.incarnation = Incarnation(1, number)
        self.roster: dict[str, Member] = {}
        self.heard: list[tuple[str, object]] = []
        self.links = self.make_links(number)

    def make_links(self, number: int) -> PeerLinks:
        known, listed = self.roster.get, self.roster.values
        chance = random.Random(number)
        return PeerLinks(self, chance, known=known, listed=listed, receive=self.hear)

    def hear(self, sender: str, envelope: Envelope) -> None:
        self.heard.append((sender, envelope.body))

    def member(self, proof: str) -> Member:
        who = LearnerName(self.name), self.incarnation
        return Member(*who, Status.LIVE, self.name, stepped=True, proof=proof)

    def knows(self, other: "Node", proof: str) -> None:
        self.roster[other.name] = other.member(proof)
        self.links.follow(self.incarnation)

    async def end(self) -> None:
        self.links.close()
        await self.kill()


@asynccontextmanager
async def nodes(count: int) -> AsyncIterator[tuple[MemoryNetwork, list[Node]]]:
    network = MemoryNetwork()
    made = [Node(network, f"learner-{number}", number) for number in range(count)]
    for node in made:
        node.links.listen()
    try:
        yield network, made
    finally:
        for node in made:
            await node.end()


@virtual
async def test_a_message_waits_for_its_link_and_answers_take_the_same_one() -> None:
    async with nodes(2) as (_, (one, two)):
        one.knows(two, "secret of both")
        two.knows(one, "secret of both")
        one.links.send(two.name, WORD)
        one.links.send(two.name, WORD)
        await asyncio.sleep(1.0)
        assert two.heard == [(one.name, WORD)] * 2
        two.links.send(one.name, WORD)
        await asyncio.sleep(1.0)
        assert one.heard == [(two.name, WORD)]
        assert two.links.bytes_sent == 0


@virtual
async def test_nobody_is_heard_without_the_proof_of_the_pair() -> None:
    async with nodes(2) as (network, (one, two)):
        two.knows(one, "secret of both")
        good = PeerHello(LearnerName(one.name), one.incarnation, "secret of both")
        for bad in (
            replace(good, proof="guessed"),
            replace(good, proof=""),
            replace(good, name=LearnerName("learner-9")),
            replace(good, incarnation=Incarnation(0, 0)),
            WORD,
        ):
            link = await network.dial(two.name, local=one.name)
            link.send(Envelope(one.name, two.name, 1, bad))
            link.send(Envelope(one.name, two.name, 2, WORD))
            try:
                await link.receive()
            except LinkClosed:
                pass
            else:
                raise AssertionError("nothing is answered to such a message")
        assert two.heard == []
        link = await network.dial(two.name, local=one.name)
        link.send(Envelope(one.name, two.name, 1, good))
        link.send(Envelope(one.name, two.name, 2, WORD))
        await asyncio.sleep(1.0)
        assert two.heard == [(one.name, WORD)]


@virtual
async def test_a_member_without_a_proof_lets_nobody_in() -> None:
    async with nodes(2) as (_, (one, two)):
        one.knows(two, "")
        two.knows(one, "")
        one.links.send(two.name, WORD)
        await asyncio.sleep(5.0)
        assert two.heard == []


@virtual
async def test_who_leaves_the_roster_loses_its_link() -> None:
    async with nodes(2) as (_, (one, two)):
        one.knows(two, "secret of both")
        two.knows(one, "secret of both")
        one.links.send(two.name, WORD)
        await asyncio.sleep(1.0)
        two.roster.clear()
        two.links.follow(two.incarnation)
        one.links.send(two.name, WORD)
        await asyncio.sleep(5.0)
        assert two.heard == [(one.name, WORD)]
        two.links.send(one.name, WORD)
        await asyncio.sleep(1.0)
        assert one.heard == []


@virtual
async def test_links_are_kept_to_those_met_last() -> None:
    async with nodes(LINKS_MAX + 4) as (_, (one, *others)):
        for other in others:
            one.knows(other, "secret")
            other.knows(one, "secret")
        for _ in range(2):
            for other in others:
                one.links.send(other.name, WORD)
                await asyncio.sleep(0.5)
        assert all(other.heard == [(one.name, WORD)] * 2 for other in others)
        open_ = sum(other.links._called_by(one.name) is not None for other in others)  # noqa: SLF001
        assert open_ == LINKS_MAX


class SocketNode(Node):
    """A learner of a run whose hub has another token than it shows to its neighbours."""

    def __init__(self, name: str, number: int, said: list[str]) -> None:
        super().__init__(MemoryNetwork(), name, number)
        self.arrived = asyncio.Event()
        self.keyring = Keyring()
        self.peers = WebsocketNetwork(MESSAGE_TYPES, secret=self.keyring, report=said.append)
        self.context = replace(self.context, peers=self.peers, keyring=self.keyring)
        self.links = self.make_links(number)
        self.address = ""

    def hear(self, sender: str, envelope: Envelope) -> None:
        super().hear(sender, envelope)
        self.arrived.set()

    def member(self, proof: str) -> Member:
        return replace(super().member(proof), address=self.address, host="127.0.0.1")


@asynccontextmanager
async def over_sockets(count: int) -> AsyncIterator[tuple[list[SocketNode], list[str]]]:
    """So many learners that listen on loopback, and what is reported of whom they refuse."""
    said: list[str] = []
    made = [SocketNode(f"learner-{number}", number, said) for number in range(count)]
    for node in made:
        await node.peers.open("127.0.0.1", 0)
        node.address = node.links.listen()
    try:
        yield made, said
    finally:
        for node in made:
            await node.end()
            await node.peers.close()


async def test_over_sockets_the_pairs_proof_stands_in_place_of_the_token() -> None:
    async with over_sockets(2) as ((one, two), said):
        proof = "p" * 64
        elsewhere = replace(
            two.member(proof), address=two.address.replace("127.0.0.1", "nowhere.invalid")
        )
        two.knows(one, proof)
        one.roster[two.name] = elsewhere
        one.links.follow(one.incarnation)
        one.links.send(two.name, WORD)
        async with asyncio.timeout(20.0):
            await two.arrived.wait()
        assert two.heard == [(one.name, WORD)]
        assert said == []


async def test_over_sockets_no_other_secret_opens_a_link() -> None:
    async with over_sockets(2) as ((one, two), said):
        two.knows(one, "p" * 64)
        for secret in (Secret("the-token-of-the-run"), Secret("q" * 64), None):
            stranger = WebsocketNetwork(MESSAGE_TYPES, secret=secret)
            with pytest.raises(DialFailed):
                await stranger.dial(two.address, local=one.name)
            await stranger.close()
        assert len(said) == 3
        assert two.heard == []


@pytest.mark.parametrize("hub", ["wss://hub:7070/supervisor", "ws://hub:7070/supervisor"])
@virtual
async def test_where_the_hub_is_dialled_with_tls_no_learner_is_dialled_without(hub: str) -> None:
    node = Node(MemoryNetwork(), "learner-0", 0, hub=hub)
    for number, scheme in enumerate(("ws", "wss"), start=1):
        name = LearnerName(f"learner-{number}")
        node.roster[name] = Member(
            name, Incarnation(1, number), Status.LIVE, f"{scheme}://{name}:1/{name}", proof="p"
        )
    node.links.follow(Incarnation(1, 0))
    for other in ("learner-1", "learner-2"):
        node.links.send(other, WORD)
    dialled = list(node.links._sessions)  # noqa: SLF001
    known = ["learner-1", "learner-2"]
    assert dialled == (known[1:] if hub.startswith("wss") else known)
    await node.end()


@virtual
async def test_two_members_that_name_one_address_are_shown_their_own_proofs() -> None:
    node = SocketNode("learner-0", 0, [])
    for number, host in ((1, "127.0.0.1"), (2, "127.0.0.2")):
        name = LearnerName(f"learner-{number}")
        node.roster[name] = Member(
            *(name, Incarnation(1, number), Status.LIVE, "ws://127.0.0.1:7/learner-1"),
            stepped=True,
            proof=f"proof of {number}",
            host=host,
        )
    node.links.follow(Incarnation(1, 0))
    for other in ("learner-1", "learner-2"):
        node.links.send(other, WORD)
    for number in (1, 2):
        address = f"ws://127.0.0.1:7/learner-{number}"
        assert node.keyring.header(address) == f"Bearer proof of {number}"
        assert node.keyring.host(address) == f"127.0.0.{number}"
    await node.end()
    await node.peers.close()
