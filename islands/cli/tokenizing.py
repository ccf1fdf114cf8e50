"""`islands tokenize TEXT`: text becomes tokens on disk, with the tokenizer that made them."""

from pathlib import Path

from islands.cli.parsing import Common
from islands.protocol.errors import UserError, unusable
from islands.settings.text import TokenizeOptions
from islands.tasks.data.prepared import is_prepared, prepare, split_of
from islands.tasks.data.text import text_at
from islands.tasks.data.tokenizer import ByteTokenizer, Tokenizer, train

BYTE_VALUES = 256


def run(options: TokenizeOptions, _: Common) -> int:
    """Make the folder, and say what is in it; returns the exit code.

    Raises:
        UserError: no text was named, or the folder is there already and not empty.
    """
    if not options.text:
        raise UserError("no text was named; as in: islands tokenize FOLDER --out tokens")
    if is_prepared(options.out):
        raise UserError(f"{options.out} holds tokens already; name another folder, or delete it")
    require_place(options.out)
    text = text_at(Path(options.text).expanduser(), options.json_field)
    tokenizer: Tokenizer = ByteTokenizer()
    if options.vocabulary > BYTE_VALUES:
        split = split_of(text.documents(), options.held_out)
        documents = (each for each in text.documents() if not split.held_out(each))
        tokenizer = train(documents, options.vocabulary)
    told = prepare(text, tokenizer, options.held_out, options.out).manifest
    both = told.train.tokens + told.validation.tokens
    text_bytes = told.train.text_bytes + told.validation.text_bytes
    print(
        f"{options.out}: {both:,} tokens of {text_bytes / max(1, both):.2f} bytes each, from "
        f"{told.documents:,} documents in {len(told.files):,} files; {told.held_out_documents:,} "
        f"documents are held out\ntokenizer: {told.tokenizer}"
    )
    return 0


def require_place(folder: Path) -> None:
    """Check that a folder can be made, or is empty.

    Raises:
        UserError: there is a file in it, or in its place.
    """
    try:
        occupied = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be read", error) from error
    if occupied:
        kind = "is not empty" if folder.is_dir() else "is a file"
        raise UserError(f"{folder} {kind}; name a folder that is yet to be made as --out")
