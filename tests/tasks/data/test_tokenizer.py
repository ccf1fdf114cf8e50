"""Tokenizers: bytes, and byte pairs where the package for them is installed."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from islands.protocol.errors import DataError
from islands.tasks.data import tokenizer

TEXTS = [b"the cat sat on the mat", "die Katze saß".encode(), b"<|end|> is only a text", b"\xff\n"]


def test_bytes_end_with_a_nul() -> None:
    assert [tokens.tolist() for tokens in tokenizer.ByteTokenizer().encode([b"ab", b""])] == [
        [97, 98, 0],
        [0],
    ]


@pytest.mark.parametrize(
    ("vocabulary", "name"), [(256, "uint8"), (257, "uint16"), (65536, "uint16"), (65537, "uint32")]
)
def test_tokens_take_no_more_bytes_than_they_need(vocabulary: int, name: str) -> None:
    assert tokenizer.dtype_of(vocabulary) == np.dtype(name)


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DataError, match=r"pip install 'islands\[text\]'"):
        tokenizer.train(TEXTS, 300)


def test_a_small_vocabulary_is_refused() -> None:
    with pytest.raises(DataError, match="a vocabulary of 256 is too small"):
        tokenizer.train(TEXTS, 256)


@pytest.fixture
def learned() -> tokenizer.PairTokenizer:
    pytest.importorskip("tokenizers")
    return tokenizer.train(TEXTS * 9, 300)


def test_byte_pairs_encode_every_text(learned: tokenizer.PairTokenizer) -> None:
    """Also one with letters that training never saw; each document ends with `END`."""
    texts = [*TEXTS[:3], "ünseen ☃".encode()]
    encoded = list(learned.encode(texts))
    spelled = [b"".join(learned.spelled([tokens.tolist()[:-1]])) for tokens in encoded]
    assert spelled == texts
    assert all(tokens[-1] == tokenizer.END for tokens in encoded)
    assert len(encoded[0]) < len(TEXTS[0])


def test_the_name_of_the_end_in_a_text_is_no_end(learned: tokenizer.PairTokenizer) -> None:
    (tokens,) = learned.encode([TEXTS[2]])
    assert tokens.tolist().count(tokenizer.END) == 1


def test_training_repeats_and_its_file_says_what_was_learned(
    learned: tokenizer.PairTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "t.json").write_text(learned.text)
    assert (
        tokenizer.load(tmp_path / "t.json").name
        == learned.name
        == tokenizer.train(TEXTS * 9, 300).name
    )
    assert tokenizer.train(TEXTS[:1] * 9, 300).name != learned.name


def test_documents_end_with_the_end_that_a_tokenizer_has(
    learned: tokenizer.PairTokenizer, tmp_path: Path
) -> None:
    """Token 0 of somebody else's is a letter, and would be put behind each document."""
    path = tmp_path / "tokenizer.json"
    text = json.loads(learned.text)
    text["added_tokens"], vocabulary = [], text["model"]["vocab"]
    last = len(vocabulary)
    text["model"]["vocab"] = {
        name: number for name, number in vocabulary.items() if name != tokenizer.END_TEXT
    }
    path.write_text(json.dumps(text))
    with pytest.raises(DataError, match=r"has no token that ends a document: none of <\|end\|>"):
        tokenizer.load(path)
    text["model"]["vocab"]["<|endoftext|>"] = last
    path.write_text(json.dumps(text))
    (tokens,) = tokenizer.load(path).encode([b"a letter"])
    assert tokens[-1] == last


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(DataError, match="none cannot be read"):
        tokenizer.load(tmp_path / "none")
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(DataError, match=r"t\.json is no file of a tokenizer"):
        tokenizer.load(tmp_path / "t.json")
