"""One end of a link as a program, for tests that break the way between two processes.

    python -m tests.integration.link_end --listen 10.77.2.2
    python -m tests.integration.link_end --dial 10.77.2.2 --envelopes 50 --payload-bytes 100000

The hub sends back whatever comes, on the lane that its number tells. The dialler keeps a session
alive, beats, and on its first session sends the envelopes asked for. It prints a line of JSON for
each thing that happens: `opened`, `lost` (with the reason), `beat` (its echo came), `complete`
(all envelopes came back as they were sent, in order) or `wrong` (they did not).
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Sequence

from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Link
from messaging.links.link_state import DialSettings
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret
from tests.messaging.doubles import Probe, Spoken, beat, carrying

PORT = 7070
SECRET = "of-a-test-in-its-own-namespace"  # noqa: S105 (nobody else is in there)
BULK_FROM = 1000  # numbers from here on travel as bulk
CONTROL_BYTES = 100
BEAT_S = 0.1
SETTINGS = DialSettings(
    backoff_first_s=0.05,
    backoff_longest_s=0.5,
    dial_timeout_s=1.0,
    stable_s=1.0,
    liveness_s=1.0,
)


def tell(event: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def lane_of(number: int) -> Lane:
    return Lane.BULK if number >= BULK_FROM else Lane.CONTROL


class Hub:
    """Sends back whatever comes."""

    async def run(self, host: str) -> None:
        """Listen until cancelled."""
        network = make_network()
        await network.open(host, PORT)
        listener = network.listen("hub")
        tell("ready")
        async with Scope("hub") as scope:
            while True:  # until cancelled
                scope.spawn(self._answer(await listener.accept()), "answer")

    async def _answer(self, link: Link) -> None:
        try:
            while True:  # until the link is lost
                envelope = await link.receive()
                link.send(envelope, lane_of(envelope.id))
        except LinkClosed:
            return


class Caller:
    """Keeps a session with the hub and says what happens to it."""

    def __init__(self, count: int, payload_bytes: int) -> None:
        self._left = self._batch(count, payload_bytes)
        self._missing = {lane: list(sent) for lane, sent in self._left.items()}

    async def run(self, host: str) -> None:
        """Call until cancelled."""
        network = make_network()
        await Dialer(
            network,
            f"ws://{host}:{PORT}/hub",
            local="near",
            on_open=self._opened,
            on_envelope=self._heard,
            on_close=lambda _, reason: tell("lost", reason=reason),
            rng=random.Random(0),
            settings=SETTINGS,
        ).run()

    def _batch(self, count: int, payload_bytes: int) -> dict[Lane, list[Envelope]]:
        rng = random.Random(1)
        kinds = ((Lane.CONTROL, 1, CONTROL_BYTES), (Lane.BULK, BULK_FROM, payload_bytes))
        return {
            lane: [carrying(rng.randbytes(size), lane, first + number) for number in range(count)]
            for lane, first, size in kinds
        }

    def _opened(self, link: Link) -> None:
        tell("opened")
        beat(link, BEAT_S)
        batch, self._left = self._left, {}
        for sent in batch.values():
            for envelope in sent:
                self._send(link, envelope)

    def _send(self, link: Link, envelope: Envelope) -> None:
        link.send(envelope, lane_of(envelope.id))

    def _heard(self, link: Link, envelope: Envelope) -> None:
        if envelope.id == 0:
            tell("beat")
            return
        missing = self._missing[lane_of(envelope.id)]
        if not missing or missing.pop(0) != envelope:
            tell("wrong", number=envelope.id)
        elif not any(self._missing.values()):
            tell("complete")


def make_network() -> WebsocketNetwork:
    return WebsocketNetwork((Probe, Spoken), secret=Secret(SECRET))


def main(line: Sequence[str] | None = None) -> None:
    """Run one end until it is killed."""
    parser = argparse.ArgumentParser(description="One end of a link.")
    parser.add_argument("--listen", metavar="HOST")
    parser.add_argument("--dial", metavar="HOST")
    parser.add_argument("--envelopes", type=int, default=0, help="to send on each lane")
    parser.add_argument("--payload-bytes", type=int, default=10_000, help="of bulk")
    arguments = parser.parse_args(line)
    if arguments.listen:
        asyncio.run(Hub().run(arguments.listen))
    else:
        caller = Caller(arguments.envelopes, arguments.payload_bytes)
        asyncio.run(caller.run(arguments.dial))


if __name__ == "__main__":
    main()
