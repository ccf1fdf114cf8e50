"""A run that diverges in real processes is told, paused, and gone back to where it had not."""

from pathlib import Path

import pytest

from tests.benchmarks.diverged import DISTURBED_AFTER, Disturbed
from tests.integration.programs import entries, logged, merges, open_room

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LEFT = 0.8
"""Undisturbed runs end at 0.65, and before any training it is 1.4."""


async def begun(run: Disturbed) -> None:
    await run.room.wait(lambda: merges(run.folder) >= DISTURBED_AFTER)


@pytest.mark.long(
    "tests/keeping/test_divergence.py::test_a_hub_that_has_decided_to_go_back_does_so_once"
)
async def test_the_command_that_is_told_goes_back(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        run = Disturbed(room, divergence_s=1.0)
        hub = run.hub("pause")
        await begun(run)
        told = await run.disturb()
        again = await run.again(told, hub)
        assert await run.ended(again) < LEFT
    assert "the run has diverged: " in hub.err
    assert str(told["command"]) in hub.err
    assert f"the run goes back to checkpoint {told['checkpoint']}: " in again.err


@pytest.mark.long(
    "tests/keeping/test_divergence.py::test_killed_before_the_run_has_gone_back_it_goes_back"
)
async def test_a_hub_that_is_killed_while_it_goes_back_goes_back_in_its_next_start(
    tmp_path: Path,
) -> None:
    async with open_room(tmp_path) as room:
        run = Disturbed(room, divergence_s=1.0)
        hub = run.hub("resume")
        await begun(run)
        told = await run.disturb()
        hub.process.kill()
        await room.ended(hub)
        again = run.hub("resume")
        assert await run.ended(again) < LEFT
        assert len(run.told()) == 1
    assert f"the run goes back to checkpoint {told['checkpoint']}: " in again.err


@pytest.mark.long(
    "tests/keeping/test_divergence.py::test_a_hub_that_has_decided_to_go_back_does_so_once"
)
async def test_a_hub_goes_back_by_itself_and_the_second_time_ends(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        run = Disturbed(room, divergence_s=1.0)
        hub = run.hub("resume")
        await begun(run)
        first = await run.disturb(healed=False)
        assert await room.ended(hub) == 2
        second = run.told()[1]
        last = hub.err.strip().splitlines()[-1]
        assert "it has diverged again, before it was past where it did so last" in last
        assert str(second["command"]) in last
        run.fault.unlink()
        started = entries(run.folder / "tape.jsonl", "started")
        assert [e["actor"] for e in started].count("supervisor") == 2
        assert len(logged(run.folder, "paused")) == 2
        assert str(first["then"]).startswith("it goes back to")
        again = await run.again(second, hub)
        assert await run.ended(again) < LEFT
