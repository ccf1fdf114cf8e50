"""A restarted learner among the real actors: its inner moments come from a peer, by the hub."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from islands.lab.world.world import LearnerHost, World
from islands.protocol.identities import LearnerName
from islands.protocol.messages.training import StateRequest
from islands.protocol.settings.run import RunSettings, Timing
from messaging.envelope import Envelope
from tests.lab.world.worlds import Entries, entries, lived

pytestmark = pytest.mark.simulation

WARM_S = 4.0
BEFORE_PIECES_S = 0.05
AGAIN_S = 4.0


def played(
    deed: Callable[[World], Awaitable[None]], hosts: dict[str, LearnerHost] | None = None
) -> Entries:
    """The tape of three learners, to the second of whom something is done after a while."""
    settings = RunSettings(interval_steps=4, fragments=2, timing=Timing(patience=0.5))
    three = {name: LearnerHost() for name in ("ana", "ben", "eve")}
    world = lived(settings, hosts or three, WARM_S, deed, AGAIN_S)
    assert world.failures == []
    return entries(world)


def said(lines: Entries, actor: str, kind: str) -> Entries:
    return [e for e in lines if (e["actor"], e["kind"]) == (actor, kind) and after(e)]


def after(entry: dict[str, Any]) -> bool:
    return float(str(entry["at_s"])) >= WARM_S


async def restart(world: World) -> None:
    """Ben's process dies and comes back at once."""
    await world.kill("ben")
    world.start("ben")


def test_a_restarted_learner_takes_the_moments_of_a_peer() -> None:
    lines = played(restart)
    (taken,) = said(lines, "ben", "moments_taken")
    given = said(lines, str(taken["from"]), "moments_given")
    assert {entry["piece"] for entry in given} == set(range(int(str(taken["pieces"]))))
    assert taken["pieces"] == 2
    assert said(lines, "ben", "contribute")


def test_a_donor_that_dies_is_not_waited_for() -> None:
    async def restart_and_kill_donors(world: World) -> None:
        await restart(world)
        await asyncio.sleep(BEFORE_PIECES_S)
        await world.kill("ana", silent=True)
        await world.kill("eve", silent=True)

    lines = played(restart_and_kill_donors)
    (fresh,) = said(lines, "ben", "moments_fresh")
    assert "did not come in time" in str(fresh["reason"])
    assert float(str(fresh["waited_s"])) <= 1.0 + 1e-6
    told = said(lines, "ben", "progress")
    assert any(entry["tokens"] for entry in told if entry["at_s"] > fresh["at_s"])


def test_an_unlike_donor_is_given_up_at_once() -> None:
    hosts = {"ana": LearnerHost(momentum=0.0), "ben": LearnerHost()}
    lines = played(restart, hosts)
    (fresh,) = said(lines, "ben", "moments_fresh")
    assert fresh["reason"] == "ana has none to give"


def test_the_hub_says_who_speaks() -> None:
    async def pretend(world: World) -> None:
        ana, eve = world.learner("ana"), world.learner("eve")
        assert ana is not None
        assert eve is not None
        link = ana.syncer_link
        schema = ana.state.moments.schema or ""
        state, own = world.syncer_state, ana.state.incarnation
        assert link is not None
        assert state is not None
        assert own is not None
        state.core.members.learners[LearnerName("ana")].donor = LearnerName("eve")
        request = StateRequest(own, 0, schema)
        for recipient in ("eve", "nobody", "nobody"):
            link.send(Envelope("ben", recipient, 10**6, request))

    lines = played(pretend)
    assert [entry["to"] for entry in said(lines, "eve", "moments_given")] == ["ana"]
    (undelivered,) = said(lines, "syncer", "kept_out")
    assert (undelivered["name"], undelivered["what"]) == ("ana", "StateRequest for nobody")
