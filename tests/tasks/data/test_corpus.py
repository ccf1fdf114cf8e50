"""The standard library as a corpus: its split, its manifest, its fingerprint."""

import zlib
from pathlib import Path

import pytest

from islands.protocol.errors import DataError
from islands.tasks.data.corpus import part_of, read_corpus, standard_library

TRAIN = next(name for i in range(99) if part_of(name := f"module{i}.py") == "train")
VALIDATION = next(name for i in range(99) if part_of(name := f"module{i}.py") == "validation")


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def small(root: Path) -> Path:
    write(root, TRAIN, "train")
    write(root, VALIDATION, "held out")
    return root


def test_files_are_split_by_the_hash_of_their_path(tmp_path: Path) -> None:
    corpus = read_corpus(small(tmp_path))
    assert corpus.train.tobytes() == b"train"
    assert corpus.validation.tobytes() == b"held out"


def test_tests_and_installed_packages_are_left_out(tmp_path: Path) -> None:
    before = read_corpus(small(tmp_path)).digest
    write(tmp_path, f"test/{TRAIN}", "no")
    write(tmp_path, f"site-packages/deep/{TRAIN}", "no")
    write(tmp_path, "notes.txt", "no")
    assert read_corpus(tmp_path).digest == before


def test_a_changed_file_changes_the_digest(tmp_path: Path) -> None:
    before = read_corpus(small(tmp_path)).digest
    write(tmp_path, TRAIN, "other")
    assert read_corpus(tmp_path).digest != before


def test_a_folder_without_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too few to train on"):
        read_corpus(tmp_path)


def test_the_standard_library_is_there_and_compresses() -> None:
    corpus = standard_library()
    assert len(corpus.train) > 5_000_000
    assert len(corpus.validation) > 200_000
    assert (
        1.5 < 8 * len(zlib.compress(corpus.validation.tobytes(), 9)) / len(corpus.validation) < 2.5
    )
