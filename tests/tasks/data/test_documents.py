"""Documents of text files and of lines of JSON, found by folder, by pattern or by name."""

import os
from pathlib import Path

import pytest

from islands.protocol.errors import DataError
from islands.tasks.data.text import PASSAGE_BYTES, RUN_MARKS, exists, file_digest, find_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two texts, one of them deeper, a hidden file, a binary file and two lines of JSON."""
    root = tmp_path / "corpus"
    (root / "deep").mkdir(parents=True)
    (root / "b.md").write_text("bee")
    (root / "deep" / "a.txt").write_text("ay\n")
    (root / ".hidden").write_text("no")
    (root / "picture.png").write_bytes(b"\x89PNG\0\0")
    (root / "lines.jsonl").write_text('{"text": "one", "more": 1}\n\n{"text": ""}\n{"text": "zwö"}')
    return root


def test_a_folder_holds_the_documents_of_all_its_text_files(folder: Path) -> None:
    text = find_text(folder)
    assert text.names == ("b.md", "deep/a.txt", "lines.jsonl")
    assert list(text.documents()) == [b"bee", b"ay\n", b"one", "zwö".encode()]


@pytest.mark.parametrize("mark", RUN_MARKS)
def test_folders_of_runs_are_left_out(folder: Path, mark: str) -> None:
    before = find_text(folder).names
    run = folder / "runs" / "mine"
    (run / "earlier").mkdir(parents=True)
    for path in (run / mark, run / "metrics.jsonl", run / "earlier" / "log", run.parent / "new.md"):
        path.write_text("words")
    assert find_text(folder).names == (*before, "runs/new.md")
    assert find_text(folder / "**" / "*").names == (*before, "runs/new.md")
    assert "metrics.jsonl" in find_text(run).names


def test_a_name_that_is_no_utf8_is_compared_as_text(folder: Path) -> None:
    """It is shown so that any terminal can show it."""
    os.close(os.open(os.fsencode(folder) + b"/caf\xe9.txt", os.O_CREAT))
    assert [file.path for file in find_text(folder).manifest()][1] == r"caf\udce9.txt"


def test_a_pattern_and_a_file_name_what_they_match(folder: Path) -> None:
    assert find_text(folder / "**" / "*.txt").names == ("deep/a.txt",)
    assert find_text(folder / "*.md").root == folder
    assert find_text(folder / "deep" / "a.txt").names == ("a.txt",)
    assert exists(folder / "*.md")
    assert not exists(folder / "*.rst")


def test_no_text_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=r"there is no text at .*\*\.rst"):
        find_text(folder / "*.rst")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"there is no text at .*empty"):
        find_text(folder / "empty")


def test_a_long_file_is_cut_at_the_ends_of_lines(tmp_path: Path) -> None:
    """Its passages together are the file; each but the last is about `PASSAGE_BYTES` long."""
    lines = b"".join(b"%07d\n" % number for number in range(3 * PASSAGE_BYTES // 8 + 5))
    (tmp_path / "long.txt").write_bytes(b"x" + lines)
    passages = list(find_text(tmp_path).documents())
    assert b"".join(passages) == b"x" + lines
    assert len(passages) == 4
    assert all(passage.endswith(b"\n") for passage in passages)
    assert all(PASSAGE_BYTES <= len(p) <= PASSAGE_BYTES + 8 for p in passages[:3])


def test_the_manifest_tells_path_size_and_digest(folder: Path) -> None:
    """So that hosts with other bytes can be told apart by file."""
    before = find_text(folder).manifest()
    assert [(file.path, file.size_bytes) for file in before][:2] == [("b.md", 3), ("deep/a.txt", 3)]
    assert before[0].digest == file_digest(folder / "b.md")
    (folder / "b.md").write_text("wee")
    after = find_text(folder).manifest()
    assert [mine == theirs for mine, theirs in zip(before, after, strict=True)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"text": "a"}\n{"body": "b"}', r"c.jsonl:2 has no text in 'text'; .* as `json_field`"),
        ('{"text": 3}', r"c.jsonl:1 has no text in 'text'"),
        ("plain", r"c.jsonl:1 is no JSON object"),
    ],
)
def test_a_line_without_text_is_refused_by_its_number(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "c.jsonl").write_text(line)
    with pytest.raises(DataError, match=says):
        list(find_text(tmp_path).documents())


def test_another_field_may_hold_the_text(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"body": "b"}')
    assert list(find_text(tmp_path, "body").documents()) == [b"b"]
