"""What Ray is asked to give an island, and what its actors mean, without any Ray."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from islands.engines.engine import Island, JobState, RunMark, Unplaceable, told_of
from islands.engines.needs import Needs, read_islands
from islands.engines.ray import Ray, RaySettings, request_of, settings_of, shown_of
from islands.engines.ray_driver import answer
from islands.engines.ray_jobs import (
    Began,
    Ended,
    Node,
    Rank,
    Request,
    job_of,
    options_of,
    why_waiting,
    words_of,
)
from islands.protocol.errors import SettingsError

OF = RunMark("first", "ab12cd34")
ONE = Request(1, {"CPU": 2.0}, {})
TWO = Request(2, {"CPU": 2.0}, {})
NODES = {key: Node(f"node-{key}", {"CPU": 4.0, "GPU": 1.0}, {}) for key in "ab"}
ON_A, ON_B = Began("a", "10.0.0.1"), Began("b", "10.0.0.2")
MUST_BE = "it must be names and numbers above 0, as fast_link:1,site_a:0.5"
OTHER = "Version mismatch: 3.11 and 3.12"
STRANGE = "Invalid address format: x"
LOST = Ended(None, "The actor died because its node has died.")
KILLED = Ended(None, "The actor is dead because it was killed by `ray.kill`.")


def island(**needs: object) -> Island:
    environment = {"ISLANDS_TOKEN": "secret", "COLOUR": "blue"}
    return Island("site-0", OF, Needs("ray", **needs), "train", environment)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_", "ranks", "asked", "state", "where"),
    [
        (ONE, [Rank()], False, JobState.WAITING, ""),
        (ONE, [Rank(ON_A)], False, JobState.RUNNING, "node-a"),
        (ONE, [Rank(ON_A)], True, JobState.ENDING, "node-a"),
        (ONE, [Rank(ON_A, Ended(0))], False, JobState.ENDED, ""),
        (TWO, [Rank(ON_A), Rank()], False, JobState.WAITING, ""),
        (TWO, [Rank(ON_A), Rank(ON_B)], False, JobState.RUNNING, "node-a, node-b"),
        (TWO, [Rank(ON_A, Ended(0)), Rank(ON_B)], False, JobState.RUNNING, "node-a, node-b"),
        (TWO, [Rank(ON_A), Rank(ON_B, LOST)], False, JobState.ENDED, ""),
        (TWO, [Rank(ON_A), Rank(ON_B, Ended(143))], True, JobState.ENDING, "node-a, node-b"),
        (TWO, [Rank(ON_A, Ended(143)), Rank(ON_B, Ended(143))], True, JobState.ENDED, ""),
    ],
)
def test_the_state_of_a_job_follows_from_its_hosts(
    request_: Request, ranks: list[Rank], *, asked: bool, state: JobState, where: str
) -> None:
    job = job_of("site-0", "m/site-0/1", request_, ranks, NODES, asked=asked)
    assert (job.state, job.where) == (state, where)


@pytest.mark.parametrize(
    ("ends", "asked", "code", "told"),
    [
        ([Ended(0)], False, 0, ""),
        ([Ended(3, "no disk")], False, 3, "exit code 3: no disk"),
        ([LOST], False, None, f"ended: {LOST.words}"),
        ([KILLED], False, None, f"ended: {KILLED.words}"),
        ([Ended(143, "leaving")], True, 143, ""),
        ([KILLED, LOST], False, None, f"ended: {LOST.words}"),
        ([Ended(0), Ended(1, "broken")], False, 1, "exit code 1: broken"),
        ([KILLED, Ended(0)], False, None, f"ended: {KILLED.words}"),
    ],
)
def test_an_island_has_ended_as_the_first_of_its_hosts(
    ends: list[Ended], *, asked: bool, code: int | None, told: str
) -> None:
    ranks = [Rank(ON_A, end) for end in ends]
    job = job_of("site-0", "m/site-0/1", TWO, ranks, NODES, asked=asked)
    assert job.state is JobState.ENDED
    assert job.code == code
    assert told_of(job) == told


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (ONE, "pending: CPU 2 is in use, or its actor is just being started"),
        (
            Request(1, {"CPU": 8.0, "accelerator_type:H100": 0.001, "memory": 2.0**31}, {}),
            "pending: it needs a node with CPU 8, H100, memory 2 GiB; 0 of 2 are so",
        ),
        (
            Request(3, {"CPU": 1.0}, {}),
            "pending: it needs 3 nodes with CPU 1; 2 of 2 are so",
        ),
        (
            Request(1, {"CPU": 1.0}, {"ray.io/region": "eu"}),
            "pending: it needs a node with CPU 1, ray.io/region=eu; 0 of 2 are so",
        ),
        (
            Request(1, {"CPU": 1.0}, {"spot": "!yes"}),
            "pending: CPU 1, spot=!yes is in use, or its actor is just being started",
        ),
    ],
)
def test_a_wait_is_told_with_what_the_nodes_lack(request_: Request, told: str) -> None:
    assert why_waiting(request_, list(NODES.values())) == told


def test_what_ray_says_of_a_dead_actor_is_told_without_its_properties() -> None:
    said = (
        "The actor died unexpectedly before finishing this task.\n\tclass_name: IslandHost\n"
        "\tactor_id: ae27\n\tip: 192.0.2.2\nThe actor is dead because its worker process has died. "
        "Worker exit type: SYSTEM_ERROR Some common causes include: (1) the process was killed"
    )
    told = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"
    assert words_of(RuntimeError(said)) == told
    assert words_of(RuntimeError("no head")) == "no head"
    assert words_of(TimeoutError()) == "TimeoutError"


def test_needs_become_resources_of_ray() -> None:
    asked = island(
        hosts=4,
        cpus=8.0,
        memory_gib=2.0,
        accelerators="H100:8",
        region="eu-west",
        settings={"resources": "fast_link:1, site_a:0.5"},
    )
    request = request_of(asked)
    assert request.hosts == 4
    assert request.labels == {"ray.io/region": "eu-west", "ray.io/market-type": "!spot"}
    assert options_of(request) == {
        "num_cpus": 8.0,
        "num_gpus": 8.0,
        "memory": 2 * 2**30,
        "resources": {"accelerator_type:H100": 0.001, "fast_link": 1.0, "site_a": 0.5},
        "max_restarts": 0,
        "max_task_retries": 0,
        "lifetime": "detached",
    }
    tpu = request_of(island(accelerators="TPU-V4:4", preemptible=True))
    assert tpu.resources == {"CPU": 1.0, "TPU": 4.0, "accelerator_type:TPU-V4": 0.001}
    assert tpu.labels == {}
    assert request_of(island(accelerators="GPU:2")).resources == {"CPU": 1.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"adress": "head:6379"},
            "settings.adress is not known to ray; it has address, namespace, resources",
        ),
        (
            {"resources": "fast"},
            f"settings.resources is 'fast'; {MUST_BE}",
        ),
        (
            {"resources": "fast:0"},
            f"settings.resources is 'fast:0'; {MUST_BE}",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_of(settings)
    assert str(refused.value) == told


def test_the_page_shows_a_table_that_is_read() -> None:
    page = Path(__file__).parents[2] / "docs" / "engines" / "ray.md"
    block = page.read_text().split("```yaml\n")[1].partition("```")[0]
    entries = read_islands(yaml.safe_load(block)["islands"])
    asked = {name: request_of(Island(name, OF, needs, "train")) for name, needs in entries.items()}
    assert {name: each.hosts for name, each in asked.items()} == {"site": 1, "pair": 2}
    assert asked["site"].resources == {"CPU": 2.0}


def test_what_is_shown_of_a_request_has_no_secret() -> None:
    told = yaml.safe_load(shown_of(OF, RaySettings("head:6379"), island(hosts=2)))
    assert told["actor"] == "islands:first:ab12cd34/site-0"
    assert told["environment"] == {"COLOUR": "blue"}
    assert (told["hosts"], told["script"]) == (2, "exec train\n")


def test_an_image_is_refused() -> None:
    with pytest.raises(Unplaceable, match="image of site-0 is 'mine:1', but an actor of Ray runs"):
        request_of(island(image="mine:1"))


def test_a_ray_that_is_not_installed_is_told_at_once() -> None:
    if find_spec("ray") is not None:
        pytest.skip("ray is installed")
    with pytest.raises(Unplaceable) as refused:
        Ray(OF, {})
    assert str(refused.value).endswith("install it with: pip install 'islands[ray]'")


def raising(error: Exception) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda: "job", {"result": "job"}),
        (raising(ConnectionRefusedError(111, "refused")), {"away": "[Errno 111] refused"}),
        (raising(RuntimeError(OTHER)), {"refused": OTHER}),
        (raising(ValueError(STRANGE)), {"refused": STRANGE}),
        (raising(TimeoutError()), {"away": "TimeoutError"}),
    ],
)
def test_an_error_of_ray_is_mended_or_waited_for(
    act: Callable[[], object], told: dict[str, object]
) -> None:
    assert answer(act) == told
