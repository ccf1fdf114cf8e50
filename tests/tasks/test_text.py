"""A decoder on text of one's own: it learns, resumes, and tells hosts with other bytes apart."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from islands.cli.__main__ import main
from islands.model.jax_trainer import JaxTrainer
from islands.protocol.errors import DataError, SettingsError
from islands.tasks.data.shards import ShardKey
from islands.tasks.data.tokenizer import train
from islands.tasks.factory import TASK_PATH
from islands.tasks.task import Sampler
from islands.tasks.text import TextFiles

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@pytest.fixture(autouse=True)
def _cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Thirty documents of a language with few words."""
    root = tmp_path / "text"
    root.mkdir()
    rng = np.random.default_rng(0)
    for number in range(30):
        words = rng.choice(["red ", "green ", "blue ", "and "], 200)
        (root / f"{number:02}.txt").write_text("".join(words))
    return root


def tiny(path: Path | str) -> TextFiles:
    small = {"width": 32, "layers": 1, "heads": 1, "head_width": 32, "hidden": 32}
    return TextFiles(path=str(path), length=32, decoder=small, shard_count=4)


@pytest.mark.long("test_it_continues_a_text")
def test_it_learns_the_text_and_is_judged_by_what_it_never_read(folder: Path) -> None:
    task = tiny(folder)
    trainer = JaxTrainer(task, 1)
    trainer.setup()
    before = trainer.evaluate([trainer.value(0)])["val_bits_per_byte"]
    for shard in range(task.shards):
        for batch, _ in trainer.batches(ShardKey(0, shard), 0):
            trainer.step(batch, 1e-2)
    after = trainer.evaluate([trainer.value(0)])["val_bits_per_byte"]
    assert before > 7
    assert after < 1.5


def test_hosts_with_other_bytes_differ_first_in_the_file(folder: Path) -> None:
    before = JaxTrainer(tiny(folder)).layout
    assert JaxTrainer(replace(tiny(folder), rows=8)).layout == before
    (folder / "07.txt").write_text("other bytes")
    told = before.first_difference(JaxTrainer(tiny(f"{folder}/*.txt")).layout)
    assert told is not None
    assert "corpus 007 = 07.txt" in told


def test_unlike_shards_are_stretches_of_the_text(folder: Path) -> None:
    labels, task = tiny(folder).labels(), replace(tiny(folder), unlike=True)
    assert labels["data"] == "windows of 32, 4 shards, seed 0, 0.05 held out"
    assert labels["tokenizer"] == "bytes"
    assert task.labels()["data"] == "windows of 32, 4 unlike shards, seed 0, 0.05 held out"
    prepared = next((folder.parent / "cache" / "islands" / "text").iterdir())
    whole = np.fromfile(prepared / "train.tokens", np.uint8)
    windows = [whole[start : start + 33].tobytes() for start in range(0, len(whole) - 32, 32)]
    for shard in range(4):
        some = [batch for batch, _ in task.batches(ShardKey(0, shard), 0)]
        read = [row.tobytes() for each in some for row in each.tokens[each.weight > 0]]
        first, last = shard * len(windows) // 4, (shard + 1) * len(windows) // 4
        assert sorted(read) == sorted(windows[first:last])
        assert read != windows[first:last]


def test_what_tokenize_made_is_read_as_it_is(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "tokens"
    assert main(["data", "tokenize", str(folder), "--out", str(out)]) == 0
    assert main(["data", "tokenize", str(folder), "--out", str(out)]) == 2
    batch, _ = next(tiny(out).batches(ShardKey(0, 0), 0))
    assert not (tmp_path / "cache").exists()
    again, _ = next(tiny(folder).batches(ShardKey(0, 0), 0))
    np.testing.assert_array_equal(batch.tokens, again.tokens)


def test_a_saved_dataset_is_read_as_lines_of_json_are(folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra hugging-face")
    texts = [path.read_text() for path in sorted(folder.iterdir())]
    lines = "".join(f'{{"story": "{text}"}}\n' for text in texts)
    (tmp_path / "lines.jsonl").write_text(lines)
    rows = datasets.Dataset.from_dict({"number": list(range(30)), "story": texts})
    datasets.DatasetDict(train=rows).save_to_disk(tmp_path / "saved", num_shards={"train": 2})
    task = replace(tiny(tmp_path / "saved" / "train"), json_field="story")
    by_lines = replace(tiny(tmp_path / "lines.jsonl"), json_field="story")
    for shard in range(4):
        both = (each.batches(ShardKey(0, shard), 0) for each in (task, by_lines))
        for (batch, after), (line, there) in zip(*both, strict=True):
            np.testing.assert_array_equal(batch.tokens, line.tokens)
            assert after == there
    named = task.labels()["corpus 001"]
    assert named.startswith("data-00001-of-00002.arrow, column story ")


def test_tokenize_reads_a_saved_dataset(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra hugging-face")
    texts = [path.read_text() for path in sorted(folder.iterdir())]
    datasets.Dataset.from_dict({"story": texts}).save_to_disk(tmp_path / "saved")
    command = ["data", "tokenize", str(tmp_path / "saved"), "--out", str(tmp_path / "tokens")]
    assert main(command) == 2
    assert "has no text in a column 'text'; name the one that has it as" in capsys.readouterr().err
    assert main([*command, "--json_field", "story"]) == 0
    assert "30 documents in 1 files" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "saved")
    labels = tiny(tmp_path / "tokens").labels()
    assert labels["corpus 000"].startswith("data-00000-of-00001.arrow, column story ")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_tokens_replace_nothing(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("mine")
    else:
        out.mkdir()
        (out / "mine").touch()
    assert main(["data", "tokenize", str(tmp_path / "no such text"), "--out", str(out)]) == 2
    assert re.search(rf"out is (not empty|a {kind}); name a folder", capsys.readouterr().err)


def test_byte_pairs_train_too(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    out = tmp_path / "pairs"
    assert main(["data", "tokenize", str(folder), "--vocabulary", "270", "--out", str(out)]) == 0
    task = tiny(out)
    assert task.model.vocabulary <= 270
    assert next(task.batches(ShardKey(0, 0), 0))[0].tokens.dtype == np.uint16
    assert "byte pairs" in task.labels()["tokenizer"]
    by_file = replace(tiny(folder), tokenizer=str(out / "tokenizer.json"))
    assert by_file.labels() == task.labels()


def test_tokens_of_others_are_judged_per_token(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.arange(5000, dtype=np.uint16) % 10)
    task = replace(tiny(tmp_path / "t.npy"), vocabulary=10)
    shapes = jax.eval_shape(lambda key: task.init(key).params, jax.random.key(0))
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    assert list(task.evaluate(params, None)) == ["val_bits_per_token"]
    assert task.labels()["corpus 000"].startswith("t.npy ")


def test_a_relative_path_is_found_beside_the_file_of_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TASK_PATH, os.pathsep.join(["/nowhere", str(folder.parent)]))
    assert tiny("text").labels() == tiny(folder).labels()


def test_a_text_that_is_too_short_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(name)
    with pytest.raises(DataError, match="has 2 tokens to train on, too few for a window of 32"):
        next(tiny(f"{tmp_path}/*.txt").batches(ShardKey(0, 0), 0))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"path": ""}, "path is empty; it must be a folder, a pattern or a file of text"),
        ({"length": 0}, "length is 0; it must be at least 1"),
        ({"validation_windows": 0}, "validation_windows is 0; it must be at least 1"),
        ({"held_out": 1.0}, "held_out is 1.0; it is a share"),
        ({"dtype": "int7"}, "dtype is 'int7'; it must be one of uint8"),
        ({"decoder": "3M"}, "there is no decoder '3M'"),
        ({"decoder": {"heads": 3, "kv_heads": 2}}, "heads is 3: no multiple of kv_heads 2"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        TextFiles(**{"path": "text"} | settings)  # type: ignore[arg-type]  # what a user's file may hold


@pytest.mark.quick("bytes")
@pytest.mark.parametrize("tokens", ["bytes", "pairs"])
def test_it_continues_a_text(folder: Path, tmp_path: Path, tokens: str) -> None:
    task = tiny(folder)
    if tokens == "pairs":
        pytest.importorskip("tokenizers")
        out = tmp_path / "pairs"
        assert (
            main(["data", "tokenize", str(folder), "--vocabulary", "270", "--out", str(out)]) == 0
        )
        task = tiny(out)
    assert isinstance(task, Sampler)
    trainer = JaxTrainer(task, 1)
    trainer.setup()
    for shard in range(task.shards):
        for batch, _ in trainer.batches(ShardKey(0, shard), 0):
            trainer.step(batch, 1e-2)
    params = trainer.params_of([trainer.value(0)])
    pieces = list(task.sample(params, b"red and ", 40, temperature=0.3, seed=1))
    again = task.sample(params, b"red and ", 40, temperature=0.3, seed=1)
    assert b"".join(pieces) == b"".join(again)
    assert len(pieces) >= 3
    assert set(b"".join(pieces)) <= set(b"red green blue and ")


def test_characters_are_told_whole() -> None:
    pytest.importorskip("tokenizers")
    pairs = train([b"a", b"b"], 257)
    tokens = next(pairs.encode(["aé".encode()]))[:-1].tolist()
    assert list(pairs.spelled([tokens[:2], tokens[2:]])) == [b"a", "é".encode(), b""]
    assert b"".join(pairs.spelled([tokens[:2]])) == "a\N{REPLACEMENT CHARACTER}".encode()


def test_tokens_of_others_continue_no_text(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.arange(5000, dtype=np.uint16) % 10)
    task = replace(tiny(tmp_path / "t.npy"), vocabulary=10)
    with pytest.raises(SettingsError, match="holds tokens without their tokenizer"):
        task.sample({}, b"a", 1)
