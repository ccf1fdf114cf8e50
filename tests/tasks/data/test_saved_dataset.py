"""Datasets of Hugging Face's on disk: a column's text, and what is wrong with a folder."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from islands.protocol.errors import DataError
from islands.tasks.data.text import file_digest, is_saved, text_at

COLUMNS: Mapping[str, Sequence[object]] = {
    "text": ["a red\ncar", "", "grün", None, "end"],
    "body": ["1", "2", "3", "4", "5"],
    "label": [0, 1, 2, 3, 4],
    "words": [["a"], ["b"], [], [], []],
}


def package() -> ModuleType:
    found: ModuleType = pytest.importorskip("datasets", reason="needs the extra hugging-face")
    return found


def save(
    folder: Path, columns: Mapping[str, Sequence[object]] = COLUMNS, files: int | None = 2
) -> Path:
    package().Dataset.from_dict(dict(columns)).save_to_disk(folder, num_shards=files)
    return folder


def test_each_row_with_text_is_a_document(tmp_path: Path) -> None:
    text = text_at(save(tmp_path / "d"))
    assert list(text.documents()) == [b"a red\ncar", "grün".encode(), b"end"]
    assert list(text.documents()) == list(text.documents())


def test_another_column_is_another_corpus(tmp_path: Path) -> None:
    folder = save(tmp_path / "d")
    text = text_at(folder, "body")
    assert list(text.documents()) == [b"1", b"2", b"3", b"4", b"5"]
    first, second = text.manifest()
    arrow = folder / "data-00000-of-00002.arrow"
    assert first.path == "data-00000-of-00002.arrow, column body"
    assert (first.size_bytes, first.digest) == (arrow.stat().st_size, file_digest(arrow))
    assert second.path == "data-00001-of-00002.arrow, column body"
    assert {each.digest for each in text_at(folder).manifest()} == {first.digest, second.digest}
    assert set(text_at(folder).manifest()).isdisjoint(text.manifest())


def test_a_copy_and_a_second_saving_are_the_same_corpus(tmp_path: Path) -> None:
    folder = save(tmp_path / "d")
    manifest = text_at(folder).manifest()
    assert text_at(Path(shutil.copytree(folder, tmp_path / "copy"))).manifest() == manifest
    assert text_at(save(tmp_path / "again")).manifest() == manifest
    other = save(tmp_path / "other", {**COLUMNS, "text": ["b", "", "c", None, "end"]})
    assert text_at(other).manifest() != manifest


def test_the_format_that_a_dataset_was_saved_with_hides_no_text(tmp_path: Path) -> None:
    datasets = package()
    rows = datasets.Dataset.from_dict(COLUMNS).select([4, 0]).with_format("numpy", ["label"])
    rows.save_to_disk(tmp_path / "d")
    assert list(text_at(tmp_path / "d").documents()) == [b"end", b"a red\ncar"]


def test_a_split_is_named_below_the_folder_of_all(tmp_path: Path) -> None:
    datasets = package()
    rows = datasets.Dataset.from_dict(COLUMNS)
    both = datasets.DatasetDict(train=rows.select([0]), test=rows.select([2]))
    both.save_to_disk(tmp_path / "d")
    assert list(text_at(tmp_path / "d" / "train").documents()) == [b"a red\ncar"]
    assert list(text_at(tmp_path / "d" / "test").documents()) == ["grün".encode()]
    with pytest.raises(DataError, match=r"d holds the splits train, test; name one, as .*d/SPLIT"):
        text_at(tmp_path / "d")
    with pytest.raises(DataError, match=r"there is no text at .*d/tain"):
        text_at(tmp_path / "d" / "tain")


def test_a_missing_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    for name in ("state.json", "dataset_info.json"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"pip install 'islands\[hugging-face\]'"):
        text_at(tmp_path)


def test_a_folder_of_text_needs_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one taken for a dataset because a file in it is called state.json."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "state.json").write_text("a text")
    assert not is_saved(tmp_path)
    assert list(text_at(tmp_path).documents()) == [b"a text"]
    with pytest.raises(DataError, match=r"there is no text at .*none"):
        text_at(tmp_path / "none")


@pytest.mark.parametrize("column", ["story", "label", "words"])
def test_a_column_without_text_is_refused(tmp_path: Path, column: str) -> None:
    told = f"d has no text in a column '{column}'; name .* as `json_field`, among text, body, label"
    with pytest.raises(DataError, match=told):
        text_at(save(tmp_path / "d"), column)


def test_long_strings_are_text_too(tmp_path: Path) -> None:
    datasets = package()
    features = datasets.Features({"text": datasets.Value("large_string")})
    datasets.Dataset.from_dict({"text": ["a"]}, features).save_to_disk(tmp_path / "d")
    assert list(text_at(tmp_path / "d").documents()) == [b"a"]


@pytest.mark.parametrize("files", [0, 2])
def test_a_dataset_without_rows_is_refused(tmp_path: Path, files: int) -> None:
    with pytest.raises(DataError, match=r"the dataset .*d (has no text|cannot be read)"):
        text_at(save(tmp_path / "d", {"text": []}, files or None))


@pytest.mark.parametrize("damage", ["state.json", "dataset_info.json", "data-00001-of-00002.arrow"])
@pytest.mark.parametrize("lost", [True, False])
def test_a_dataset_that_was_copied_in_part_is_refused(
    tmp_path: Path, damage: str, *, lost: bool
) -> None:
    path = save(tmp_path / "d") / damage
    whole = path.read_bytes()
    if lost:
        path.unlink()
    else:
        path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"d cannot be read .*; save it again, or copy its whole"):
        text_at(tmp_path / "d")
