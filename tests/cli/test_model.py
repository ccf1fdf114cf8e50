"""`islands model evaluate`, `generate` and `export` on folders of runs that ended or go on."""

import io
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint
import pytest
from jaxtyping import PyTree

import islands
from islands.cli.__main__ import main
from islands.cli.newest_values import show_text
from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.protocol.identities import FinalVersions, Version
from islands.protocol.settings.run import RunSettings
from islands.run.hosting.hub_address import HubAddress, write_hub_address
from islands.run.records.model_files import metadata_of, write_model
from islands.run.records.run_values import newest_values
from islands.settings.run_spec import RunSpec, write
from islands.tasks.factory import TASK_PATH, data_folders
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes
from islands.tasks.task import TaskState, path_of
from tests.cli.run_folders import OWN, SPEC, WIDTH, KilledRun
from tests.lab.study.regression import Regression

pytestmark = pytest.mark.usefixtures("quickly_compiled")

HERE = "tests.cli.test_model"
TRUTH = Regression(width=WIDTH).truth().astype(np.float32)
PROMPT = "def f"
SMALL = DecoderConfig(width=32, layers=1, heads=2, head_width=16, hidden=64)


class Labelled(Regression):
    def labels(self) -> dict[str, str]:
        return {"corpus": "other"}


class Failing(Regression):
    def evaluate(self, params: object, state: object) -> dict[str, float]:
        message = "no such file"
        raise ValueError(message)

    def sample(
        self, params: PyTree, prompt: bytes, count: int, *, temperature: float, seed: int
    ) -> Iterator[bytes]:
        raise KeyError(prompt)


class Echo(Regression):
    """A task that answers with what it was asked, in pieces that cut a letter in two."""

    def sample(
        self, params: PyTree, prompt: bytes, count: int, *, temperature: float, seed: int
    ) -> Iterator[bytes]:
        yield from (prompt[:1], prompt[1:], f" {count} {temperature} {seed}".encode())


@dataclass(frozen=True)
class SmallBytes(StdlibBytes):
    decoder: DecoderConfig = SMALL
    length: int = 32


@pytest.fixture
def killed(tmp_path: Path) -> KilledRun:
    """A run that was killed at version 7 of one fragment and version 8 of the other."""
    run = KilledRun(tmp_path / "run")
    run.publish_all(6, {"weight": np.zeros_like(TRUTH)})
    run.durable.ledger.closed_processed = 4321
    run.publish_all(7, {"weight": TRUTH + np.float32(0.5)})
    run.publish(1, 8, run.plan.layout.disassemble({"weight": TRUTH + np.float32(0.5)})[1])
    return run


def killed_with(folder: Path, task: str) -> KilledRun:
    """A run of a task of this file, at version 0."""
    run = KilledRun(folder / "run", replace(SPEC, task=f"{HERE}:{task}"))
    run.publish_all(0, {"weight": TRUTH})
    return run


def model(verb: str, run: KilledRun, *words: str) -> int:
    return main(["model", verb, str(run.folder), *words])


# --- evaluate -------------------------------------------------------------------------------------


def test_a_killed_run_is_evaluated_at_its_newest_versions(
    killed: KilledRun, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in killed.folder.rglob("*")}
    assert model("evaluate", killed, *OWN, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["figures"] == pytest.approx({"loss": 0.25, "share": 0.5}, rel=1e-5)
    assert told["versions"] == ["1.7", "1.8"]
    assert (told["run"], told["tokens"], told["ended"]) == ("mine", 4321, None)
    assert {path: path.stat().st_mtime_ns for path in killed.folder.rglob("*")} == before


def test_people_are_told_figures_and_versions(
    killed: KilledRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert model("evaluate", killed, *OWN) == 0
    first, second, *figures = capsys.readouterr().out.splitlines()
    assert first.startswith("run mine (has not ended), 4,321 tokens, from ")
    assert second == "versions 1.7 to 1.8 of 2 fragments"
    assert [line.split() for line in figures] == [["loss", "0.25"], ["share", "0.5"]]


def test_a_copy_without_a_journal_has_the_exported_values(
    killed: KilledRun, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = killed.plan.layout
    cut = FinalVersions("tokens", 1234, (Version(1, 9), Version(1, 9)))
    values = layout.disassemble({"weight": TRUTH})
    shutil.rmtree(killed.folder / "journal")
    path = killed.folder / "final.safetensors"
    write_model(path, layout, values, metadata_of(SPEC, layout.fingerprint, cut))
    for lost in ([], ["plan.json", "run.json"]):
        for name in lost:
            (killed.folder / name).unlink()
        assert model("evaluate", killed, *OWN, "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["tokens"], told["ended"]) == (1234, "tokens")
        assert told["figures"]["loss"] < 1e-12


def test_values_are_read_while_the_journal_is_written(killed: KilledRun) -> None:
    ended = threading.Event()

    def write_on() -> None:
        for number in range(9, 200):
            killed.publish_all(number, {"weight": np.full_like(TRUTH, number)})
        ended.set()

    writer = threading.Thread(target=write_on)
    writer.start()
    reads = 0
    while not ended.is_set() or not reads:
        found = newest_values(killed.folder)
        pieces = killed.plan.layout.disassemble(found.arrays)
        for piece, version in zip(pieces, found.cut.versions, strict=True):
            if version.number > 8:
                assert set(piece.tolist()) == {float(version.number)}
        reads += 1
    writer.join()
    assert newest_values(killed.folder).cut.versions == (Version(1, 199), Version(1, 199))


def test_a_run_without_values_says_so(tmp_path: Path, refused: Callable[..., str]) -> None:
    run = KilledRun(tmp_path / "run")
    assert "has published no values yet" in refused("model", "evaluate", str(run.folder))
    run.publish(0, 0, np.zeros(run.plan.layout.fragments[0].size, np.float32))
    assert "has published no values yet" in refused("model", "evaluate", str(run.folder))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            (*OWN, "--task_settings.width", "8"),
            "is of another model: weight has shape (256, 256), the model's is (8, 8)",
        ),
        (("--task", "no_such:Task"), "task 'no_such:Task' cannot be loaded on this host"),
        ((*OWN, "--task_settings.depth", "8"), "refuses its settings"),
    ],
)
def test_another_model_is_refused(
    words: tuple[str, ...], sentence: str, killed: KilledRun, refused: Callable[..., str]
) -> None:
    assert sentence in refused("model", "evaluate", str(killed.folder), *words)


def test_a_task_that_differs_only_in_its_data_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert model("evaluate", killed_with(tmp_path, "Labelled"), *OWN) == 0
    told = capsys.readouterr()
    assert "loss" in told.out
    assert "the task differs: here task = Regression; there corpus = other" in told.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("evaluate",), "the task's evaluation failed"),
        (("generate", "--prompt", "x"), "the task's sampling failed"),
    ],
)
def test_a_task_that_fails_is_named_with_its_line(
    words: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed_with(tmp_path, "Failing")
    assert model(words[0], run, "--task", run.spec.task, *words[1:]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "test_model.py" in last
    assert sentence in last


def test_a_journal_that_is_not_whole_is_refused(
    killed: KilledRun, refused: Callable[..., str]
) -> None:
    for path in (killed.folder / "journal").glob("fragment-00001.*"):
        content = bytearray(path.read_bytes())
        content[-20] ^= 1
        path.write_bytes(content)
    told = refused("model", "evaluate", str(killed.folder), *OWN)
    assert "neither file of fragment-00001 holds a record that is whole" in told


def test_data_are_found_where_the_runs_hub_found_them(
    killed: KilledRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TASK_PATH, "")
    address = HubAddress("ws://a:1/supervisor", "mine", task_folders=("/elsewhere",))
    write_hub_address(killed.folder, address)
    searched = [*sys.path]
    assert model("evaluate", killed, *OWN, "--json") == 0
    assert data_folders()[0] == Path("/elsewhere")
    assert sys.path == searched


# --- generate -------------------------------------------------------------------------------------


def test_the_default_task_continues_a_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{HERE}:SmallBytes"
    run = KilledRun(tmp_path / "run", RunSpec(RunSettings(run="bytes", fragments=2), name))
    state: TaskState = SmallBytes().init(jax.random.key(3))
    flat, _ = jax.tree_util.tree_flatten_with_path(state.params)
    run.publish_all(0, {path_of(keys): np.asarray(leaf, np.float32) for keys, leaf in flat})
    texts = []
    for seed in ("1", "1", "2"):
        words = ("--task", name, "--prompt", PROMPT, "--count", "20", "--seed", seed)
        assert model("generate", run, *words) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    wanted = b"".join(SmallBytes().sample(state.params, PROMPT.encode(), 20, seed=1))
    assert texts[0] == PROMPT + wanted.decode(errors="replace") + "\n"


def test_options_reach_the_task_and_pieces_become_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed_with(tmp_path, "Echo")
    words = ("--prompt", "é", "--count", "3", "--temperature", "0", "--seed", "7")
    assert model("generate", run, "--task", run.spec.task, *words) == 0
    assert capsys.readouterr().out == "éé 3 0.0 7\n"


@pytest.mark.parametrize("task", [SPEC.task, "islands.lab.toys.toy_workload:Sleeping"])
def test_a_task_that_cannot_sample_is_told(
    task: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    settings: dict[str, object] = {} if "toy" in task else SPEC.task_settings
    run = KilledRun(tmp_path / "run", replace(SPEC, task=task, task_settings=settings))
    layout = run.plan.layout
    run.publish_all(0, layout.assemble([np.zeros(f.size, np.float32) for f in layout.fragments]))
    told = refused("model", "generate", str(run.folder), "--task", task, "--prompt", "x")
    assert "has no method `sample`, so it cannot continue" in told


def test_an_output_that_is_no_utf8_gets_what_it_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken, encoding="ascii"))
    show_text(["zwölf €".encode(), b" end"], "ä \udce4 ")
    sys.stdout.flush()
    assert taken.getvalue() == b"? ? zw?lf ? end\n"


# --- export ---------------------------------------------------------------------------------------


def test_the_file_holds_the_values_and_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`islands.load` reads it, `islands.described` says what it is; no task is needed."""
    run, file = KilledRun(tmp_path / "run"), tmp_path / "model.safetensors"
    run.durable.ledger.closed_processed = 4321
    run.publish_all(3, {"weight": TRUTH})
    write(run.folder, replace(SPEC, task="no_such_module:Task"), run.plan)
    assert model("export", run, str(file)) == 0
    size = f"{file.stat().st_size / 1024:.0f} KiB"
    told = f"tensors: 1, {size}, versions 1.3 to 1.3, after 4,321 tokens"
    assert told in capsys.readouterr().out
    np.testing.assert_array_equal(islands.load(file)["weight"], TRUTH)
    facts = islands.described(file)
    assert (facts["run"], facts["task"], facts["tokens"]) == ("mine", "no_such_module:Task", 4321)
    assert facts["versions"] == ["1.3", "1.3"]
    assert facts["fingerprint"] == run.plan.layout.fingerprint
    assert sorted(tmp_path.iterdir()) == [file, run.folder]


LEAVES = [
    Leaf("encoder/0/w", (4, 3), "bfloat16"),
    Leaf("encoder/1/w", (3,)),
    Leaf("head", (2,), "float16"),
    Leaf("state:mean", (3,)),
]


@pytest.fixture
def nested(tmp_path: Path) -> KilledRun:
    """A run whose model has a tree, a state, and types of its own."""
    run = KilledRun(tmp_path / "run", layout=plan(LEAVES, count=2, min_piece_bytes=4))
    chance = np.random.default_rng(1)
    drawn = {leaf.path: chance.normal(size=leaf.shape) for leaf in LEAVES}
    run.publish_all(3, {name: array.astype(np.float32) for name, array in drawn.items()})
    return run


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "model"])
@pytest.mark.parametrize("form", ["file", "folder", "orbax"])
def test_every_form_holds_the_same_values_in_the_type_that_was_asked_for(
    nested: KilledRun, tmp_path: Path, form: str, dtype: str
) -> None:
    out = tmp_path / ("model.safetensors" if form == "file" else "out")
    assert model("export", nested, str(out), "--form", form, "--dtype", dtype) == 0
    if form == "orbax":
        with orbax.checkpoint.StandardCheckpointer() as reader:
            tree = reader.restore(out)
            about = reader.metadata(out).custom_metadata
        assert set(tree) == {"params", "state"}
        flat, _ = jax.tree_util.tree_flatten_with_path(tree["params"])
        found = {path_of(keys): np.asarray(array) for keys, array in flat}
        found["state:mean"] = np.asarray(tree["state"]["mean"])
        assert about["run"] == "mine"
    elif form == "folder":
        index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
        assert sorted({*index.values()}) == [
            "encoder.safetensors",
            "head.safetensors",
            "state.safetensors",
        ]
        found = {name: islands.load(out / file)[name] for name, file in index.items()}
        assert islands.described(out / "head.safetensors")["run"] == "mine"
    else:
        found = islands.load(out)
    whole = newest_values(nested.folder).arrays
    assert found.keys() == whole.keys()
    for leaf in LEAVES:
        wanted = whole[leaf.path].astype(leaf.dtype if dtype == "model" else dtype)
        assert found[leaf.path].dtype == wanted.dtype
        np.testing.assert_array_equal(found[leaf.path], wanted)
    assert sorted(tmp_path.iterdir()) == sorted([out, nested.folder])


def test_a_value_that_a_type_cannot_hold_is_named(
    nested: KilledRun, tmp_path: Path, refused: Callable[..., str]
) -> None:
    large = {leaf.path: np.full(leaf.shape, 7e4, np.float32) for leaf in LEAVES}
    nested.publish_all(4, large)
    file = tmp_path / "model.safetensors"
    told = refused("model", "export", str(nested.folder), str(file), "--dtype", "float16")
    assert "encoder/0/w holds 70000, which float16 cannot hold" in told
    assert not file.exists()


def test_a_file_that_exists_stays(
    killed: KilledRun, tmp_path: Path, refused: Callable[..., str]
) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"mine")
    told = refused("model", "export", str(killed.folder), str(file))
    assert "exists; choose another name, or give --overwrite" in told
    assert file.read_bytes() == b"mine"
    assert model("export", killed, str(file), "--overwrite") == 0
    assert "weight" in islands.load(file)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("evaluate", "folder is not set"),
        ("evaluate none", "there is no folder none"),
        ("evaluate .", "is not the folder of a run"),
        ("evaluate file", "file is a file; name the folder of a run"),
        ("export", "folder is not set"),
        ("export x", "file is not set; it must be a .safetensors file"),
        ("export x y.npz", "file is y.npz; it must be a .safetensors file"),
        ("export x y.safetensors", "there is no folder x"),
        ("export x none/y.safetensors", "there is no folder none"),
        ("export x --form orbax", "file is not set; it must be a folder to make"),
        ("export x file --form folder", "file exists; choose another name"),
        ("export x y.safetensors --dtype int8", "dtype is int8"),
        ("generate", "folder is not set"),
        ("generate x", "prompt is empty"),
        ("generate x --prompt a --count 0", "count is 0; it must be at least 1"),
        ("generate x --prompt a --temperature -1", "temperature is -1.0; it must be at least"),
        ("generate x --prompt a --temperature nan", "temperature is nan; it must be a number"),
        (f"generate x --prompt a --seed {2**63 - 1}", "there is no folder x"),
        (f"generate x --prompt a --seed {2**63}", "it must be in [0, 9223372036854775807]"),
    ],
)
def test_a_mistake_is_one_sentence(
    line: str, sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "file").touch()
    assert sentence in refused("model", *line.split())
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]
