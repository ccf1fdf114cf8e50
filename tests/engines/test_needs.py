"""The table `islands` of a run's file: what it may say, and what is placed for it."""

import pytest

from islands.engines.engine import RunMark, make_engine
from islands.engines.hub import Joining, island_of, learner_words
from islands.engines.needs import Needs, read_islands
from islands.engines.slurm import Slurm
from islands.protocol.errors import SettingsError

OF = RunMark("My.Run", "01234567")
HUB = Joining(OF, "wss://hub.example:7070/supervisor", "sixteen-letters-or-more")


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"a b": {"engine": "ray"}}, "islands.a b: name is 'a b-0'"),
        ({"s": 3}, "islands.s: it is 3; it must be a table with an engine"),
        ({"s": {}}, "islands.s: engine is missing"),
        ({"s": {"engine": "ray", "coun": 3}}, "islands.s: coun is not known; it may have engine"),
        ({"s": {"engine": "ray", "hosts": 0}}, "islands.s: hosts is 0; it must be at least 1"),
        ({"s": {"engine": "ray", "hosts": "x"}}, "islands.s: Expected `int`"),
        ({"s": {"engine": "ray", "count": 4097}}, "islands.s: count is 4097"),
        ({"s": {"engine": "ray", "accelerators": "H100:0"}}, "accelerators is 'H100:0'"),
        ({"s": {"engine": "ray", "learner": {"name": "x"}}}, "learner.name is set"),
        ({"s": {"engine": "ray", "command": "x", "learner": {"threads": 1}}}, "has neither"),
        ({"s": {"engine": "ray", "settings": {"a": [1]}}}, "settings.a is [1]; it must be one"),
        ({"s": {"engine": "ray"}, "S": {"engine": "ray"}}, "s and S, which differ in case alone"),
        ({"learner": {"engine": "ray"}}, "the name of the hub's own learners"),
    ],
)
def test_a_wrong_entry_is_told_by_its_place(told: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_islands(told)
    assert sentence in str(error.value)


def test_an_unknown_engine_is_told_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match=r"engine is 'lsf'.*slurm.*or module:class"):
        make_engine("lsf", OF, {})


def test_numbers_and_switches_of_settings_are_words() -> None:
    entry = {"engine": "slurm", "settings": {"qos": True, "time": 30}, "setup": "a\nb\n"}
    (needs,) = read_islands({"site": entry}).values()
    assert needs.settings == {"qos": "true", "time": "30"}
    assert needs.setup == ("a", "b")
    assert Needs("ray", accelerators="H100").accelerator == ("H100", 1)


def test_a_learner_of_several_hosts_is_told_its_rank_by_the_engine() -> None:
    needs = Needs("slurm", hosts=2, setup=("source env",), learner={"task_settings": {"rows": 4}})
    island = island_of("site-0", needs, HUB)
    assert island.script().splitlines()[0] == "source env"
    assert '--hosts 2 --rank "$ISLANDS_RANK"' in island.command
    assert '"$ISLANDS_ADDRESS:7200"' in island.command
    assert "'{\"rows\": 4}'" in island.command
    assert island.job_name == "islands-my-run-site-0"
    assert island.environment["ISLANDS_TOKEN"] == HUB.token
    assert HUB.token is not None
    assert HUB.token not in island.script(exports=True)
    assert "export ISLANDS_NAME=site-0" in island.script(exports=True)


def test_a_loop_of_ones_own_finds_the_hub_in_its_environment() -> None:
    island = island_of("site-3", Needs("ray", command="python train.py", env={"A": "b"}), HUB)
    assert island.script() == "exec sh -c 'python train.py'\n"
    assert island.environment["ISLANDS_SUPERVISOR"] == "wss://hub.example:7070/supervisor"
    assert island.environment["ISLANDS_NAME"] == "site-3"
    assert island.environment["A"] == "b"


def test_options_of_a_learner_are_words() -> None:
    assert learner_words({"threads": 1, "devices": "0-3", "precision": None}) == [
        *("--threads", "1"),
        *("--devices", "0-3"),
        *("--precision", "null"),
    ]


def test_secrets_come_from_the_hub_and_are_shown_to_nobody() -> None:
    needs = read_islands(
        {"a": {"engine": "slurm", "secrets": ["HF_READ"], "env": {"WANDB_API_KEY": "w1", "N": "7"}}}
    )["a"]
    island = island_of("a-0", needs, HUB, {"HF_READ": "h2", "OTHER": "o3"})
    assert {k: island.environment[k] for k in ("HF_READ", "WANDB_API_KEY", "N")} == {
        "HF_READ": "h2",
        "WANDB_API_KEY": "w1",
        "N": "7",
    }
    assert "OTHER" not in island.environment
    shown = Slurm(HUB.of, {}).describe(island) + island.script(exports=True)
    assert "h2" not in shown
    assert "w1" not in shown
    assert "N=7" in shown
    with pytest.raises(SettingsError, match="secrets names HF_READ, which is no variable"):
        island_of("a-0", needs, HUB, {})
    with pytest.raises(SettingsError, match="it must be a list of names"):
        read_islands({"a": {"engine": "slurm", "secrets": {"HF_READ": "h2"}}})
