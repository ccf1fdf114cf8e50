"""Text on disk as tokens: what is held out, what hosts compare, and what is refused."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from islands.protocol.errors import DataError, UserError
from islands.tasks.data import prepared
from islands.tasks.data.text import SourceFile, find_text
from islands.tasks.data.tokenizer import ByteTokenizer

TEXTS = [f"document {number}" * (1 + number % 3) for number in range(200)]


def write(root: Path, texts: list[str]) -> Path:
    root.mkdir(exist_ok=True)
    lines = b"\n".join(msgspec.json.encode({"text": text}) for text in texts)
    (root / "lines.jsonl").write_bytes(lines)
    return root


def made(root: Path, texts: list[str], share: float = 0.1, out: str = "out") -> prepared.Prepared:
    text = find_text(write(root / "text", texts))
    return prepared.prepare(text, ByteTokenizer(), share, root / out)


def documents(found: prepared.Prepared, part: str) -> set[str]:
    assert part in ("train", "validation")
    tokens = found.part("train" if part == "train" else "validation")
    return set(tokens.tobytes().decode().removesuffix("\0").split("\0"))


def test_every_document_is_in_one_part(tmp_path: Path) -> None:
    found = made(tmp_path, TEXTS)
    train, held_out = documents(found, "train"), documents(found, "validation")
    assert train | held_out == set(TEXTS)
    assert not train & held_out
    assert 10 <= len(held_out) <= 35
    told = found.manifest
    assert (told.documents, told.held_out_documents) == (200, len(held_out))
    assert told.validation.text_bytes == sum(map(len, held_out))
    assert told.validation.tokens == told.validation.text_bytes + len(held_out)


def test_a_document_keeps_its_part_when_others_are_added(tmp_path: Path) -> None:
    before = documents(made(tmp_path, TEXTS[:100], out="one"), "validation")
    after = documents(made(tmp_path, TEXTS[::-1], out="other"), "validation")
    assert before == after & set(TEXTS[:100])


@pytest.mark.parametrize("share", [1e-9, 0.999999])
def test_both_parts_have_a_document(tmp_path: Path, share: float) -> None:
    found = made(tmp_path, TEXTS[:5], share)
    assert {len(documents(found, part)) for part in ("train", "validation")} == {1, 4}


def test_nothing_is_held_out_if_nothing_shall_be(tmp_path: Path) -> None:
    found = made(tmp_path, TEXTS[:1], 0.0)
    assert documents(found, "train") == {TEXTS[0]}
    assert len(found.part("validation")) == 0


@pytest.mark.parametrize(("texts", "says"), [(["a"], "it has 1 of them"), (["a", "a"], "equal")])
def test_a_corpus_that_cannot_be_split_is_refused(
    tmp_path: Path, texts: list[str], says: str
) -> None:
    with pytest.raises(DataError, match=rf"{says}.*set held_out to 0"):
        made(tmp_path, texts)


def test_no_document_is_refused() -> None:
    with pytest.raises(DataError, match="it has 0 of them"):
        prepared.split_of([], 0.0)


def test_tokens_are_mapped_and_not_read(tmp_path: Path) -> None:
    found = made(tmp_path, TEXTS)
    assert isinstance(found.part("train"), np.memmap)
    assert found.part("train").dtype == np.uint8


@pytest.mark.parametrize("damage", ["cut", "change", "remove"])
def test_a_damaged_file_is_refused_where_it_is_opened(tmp_path: Path, damage: str) -> None:
    """A copy that is not what the manifest says would train another model."""
    made(tmp_path, TEXTS)
    path = tmp_path / "out" / "train.tokens"
    data = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if damage == "cut" else b"x" + data[1:])
    with pytest.raises(DataError, match=r"train\.tokens (is not what|cannot be read)"):
        prepared.open_prepared(tmp_path / "out").part("train")


def test_without_verification_only_the_size_is_compared(tmp_path: Path) -> None:
    found = made(tmp_path, TEXTS)
    path = tmp_path / "out" / "train.tokens"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    assert found.part("train", verify=False)[0] == ord("x")
    path.write_bytes(b"x")
    with pytest.raises(DataError, match="is not what"):
        found.part("train", verify=False)


def test_who_comes_second_keeps_what_is_there(tmp_path: Path) -> None:
    made(tmp_path, TEXTS[:50])
    assert made(tmp_path, TEXTS).manifest.documents == 50
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "text"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/out cannot be written"):
        made(tmp_path, TEXTS, out="file/out")


def test_a_few_files_are_compared_one_by_one_and_many_by_ranges() -> None:
    few = [SourceFile(f"{number}.txt", number, "d") for number in range(2)]
    assert prepared.manifest_lines(few) == {"corpus 000": "0.txt 0 d", "corpus 001": "1.txt 1 d"}
    files = [SourceFile(f"{number:05}.txt", 1, "d") for number in range(1000)]
    lines = prepared.manifest_lines(files)
    assert len(lines) <= prepared.LINES_MOST
    assert lines["corpus 000"].startswith("00000.txt to 00003.txt, 4 files, 4 ")
    files[6] = SourceFile("00006.txt", 1, "other")
    changed = prepared.manifest_lines(files)
    assert [name for name in lines if lines[name] != changed[name]] == ["corpus 001"]


# --- tokens that somebody else made ---

TOKENS = np.arange(1000, dtype=np.uint16)


@pytest.mark.parametrize("name", ["t.npy", "t.bin"])
def test_a_file_is_mapped_and_its_last_tokens_are_held_out(tmp_path: Path, name: str) -> None:
    if name == "t.npy":
        np.save(tmp_path / name, TOKENS)
    else:
        TOKENS.astype("<u2").tofile(tmp_path / name)
    found = prepared.open_tokens(tmp_path / name, "uint16", held_out=0.1, vocabulary=1000)
    assert isinstance(found.train, np.memmap)
    assert found.train.tolist() == list(range(900))
    assert found.validation.tolist() == list(range(900, 1000))
    assert found.file.path == name
    assert found.file.size_bytes == (tmp_path / name).stat().st_size


def test_a_token_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    """A model would silently take another token in its place."""
    TOKENS.tofile(tmp_path / "t.bin")
    with pytest.raises(DataError, match=r"token 999, .* 999: set vocabulary to at least 1000"):
        prepared.open_tokens(tmp_path / "t.bin", "uint16", held_out=0, vocabulary=999)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((2, 3), np.uint16), r"uint16\[2, 3\], and not one row"),
        (np.zeros(3, np.float32), r"float32\[3\], and not one row"),
    ],
)
def test_another_array_is_refused(tmp_path: Path, array: np.ndarray, says: str) -> None:
    np.save(tmp_path / "t.npy", array)
    with pytest.raises(DataError, match=says):
        prepared.open_tokens(tmp_path / "t.npy", "uint16", held_out=0, vocabulary=10)


def test_files_that_cannot_be_mapped_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.bin cannot be read: No such file"):
        prepared.open_tokens(tmp_path / "none.bin", "uint16", held_out=0, vocabulary=10)
    for name, data in (("empty.bin", b""), ("odd.bin", b"abc"), ("no.npy", b"abc")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=f"{name} is no array of tokens"):
            prepared.open_tokens(tmp_path / name, "uint16", held_out=0, vocabulary=10)
