"""Commands before a run: `islands check`, `islands data tokenize`."""

from pathlib import Path

from islands.cli.parsing import Common, one_line
from islands.cli.serve import spec_of
from islands.model.memory import host_memory_bytes
from islands.model.workload import load_workload
from islands.protocol.errors import UserError, unusable
from islands.settings.commands import CheckOptions, TokenizeOptions
from islands.tasks.data.prepared import is_prepared, prepare, split_of
from islands.tasks.data.text import text_at
from islands.tasks.data.tokenizer import ByteTokenizer, Tokenizer, train
from islands.tasks.factory import allowed_by

BYTE_VALUES = 256


def check(options: CheckOptions, _: Common) -> int:
    """Check a task, and print its faults, each with the user's file and line; return 2 for any."""
    from islands.model.jax_workload import JaxWorkload

    spec = spec_of(options.file)
    if not options.file.task:
        raise UserError("task is not set; name it as package.module:Class")
    workload = load_workload(spec, allowed=allowed_by(options.file.task))
    if not isinstance(workload, JaxWorkload):
        raise UserError(f"task {spec.task!r} is a toy that needs no check")
    report = workload.check(
        spec.settings, values=not options.trace_only, room_bytes=host_memory_bytes()
    )
    for fault in report.faults:
        print(one_line(fault))
        if fault.detail:
            print(f"\n{fault.detail}")
    for part, remark in (*report.passed, *report.skipped):
        print(f"  {part:10} {remark}")
    if report.ends:
        print(f"  {'data':10} {report.ends}")
    print(f"{spec.task}: {len(report.faults) or 'nothing'} to mend")
    for doubt in spec.settings.rate_doubts:
        print(f"note: {doubt}")
    return 2 if report.faults else 0


def tokenize(options: TokenizeOptions, _: Common) -> int:
    if not options.text:
        raise UserError("no text was named; as in: islands data tokenize FOLDER --out tokens")
    if is_prepared(options.out):
        raise UserError(f"{options.out} holds tokens already; name another folder, or delete it")
    _require_room(options.out)
    text = text_at(Path(options.text).expanduser(), options.json_field)
    tokenizer: Tokenizer = ByteTokenizer()
    if options.vocabulary > BYTE_VALUES:
        split = split_of(text.documents(), options.held_out)
        documents = (each for each in text.documents() if not split.held_out(each))
        tokenizer = train(documents, options.vocabulary)
    manifest = prepare(text, tokenizer, options.held_out, options.out).manifest
    both = manifest.train.tokens + manifest.validation.tokens
    text_bytes = manifest.train.text_bytes + manifest.validation.text_bytes
    print(
        f"{options.out}: {both:,} tokens of {text_bytes / max(1, both):.2f} bytes each, from "
        f"{manifest.documents:,} documents in {len(manifest.files):,} files; "
        f"{manifest.held_out_documents:,} documents are held out\ntokenizer: {manifest.tokenizer}"
    )
    return 0


def _require_room(folder: Path) -> None:
    """Check that a folder can be made, or is empty."""
    try:
        occupied = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be read", error) from error
    if occupied:
        kind = "is not empty" if folder.is_dir() else "is a file"
        raise UserError(f"{folder} {kind}; name a folder that is yet to be made as --out")
