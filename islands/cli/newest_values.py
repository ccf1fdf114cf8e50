"""The newest published values of a run: `islands model evaluate`, `generate` and `export`.

The run's folder is only read, so its run may go on meanwhile.
"""

import codecs
import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from islands.cli.parsing import Common
from islands.model.evaluation import attempt
from islands.protocol.errors import IslandsError, UserError
from islands.run.records.model_exports import converted, write_folder, write_orbax
from islands.run.records.model_files import metadata_of, write_arrays
from islands.run.records.run_values import RunModel, model_of, newest_values
from islands.settings.commands import (
    EvaluateOptions,
    ExportForm,
    ExportOptions,
    GenerateOptions,
    named,
)
from islands.settings.quantities import size
from islands.tasks.source_location import task_error

if TYPE_CHECKING:  # an export needs no JAX
    from jaxtyping import PyTree

    from islands.tasks.task import Sampler


def evaluate(options: EvaluateOptions, _: Common) -> int:
    newest = newest_values(named(options.folder))
    model = model_of(newest, options.task, options.task_settings)
    _warn_of_difference(model)
    figures = attempt(
        lambda values: model.workload.evaluate(model.spec.settings, values),
        model.values,
        "the task's evaluation failed",
    )
    if isinstance(figures, IslandsError):
        raise figures
    cut, versions = newest.cut, [str(version) for version in newest.cut.versions]
    if options.json:
        report = {
            "run": newest.spec.settings.run,
            "task": model.spec.task,
            "source": str(newest.source),
            "tokens": cut.tokens,
            "versions": versions,
            "ended": cut.reason or None,
            "figures": figures,
        }
        print(msgspec.json.format(msgspec.json.encode(report)).decode())  # NaN becomes null
        return 0
    ended = f"ended: {cut.reason}" if cut.reason else "has not ended"
    first, last = min(cut.versions), max(cut.versions)
    between = f"version {first}" if first == last else f"versions {first} to {last}"
    print(f"run {newest.spec.settings.run} ({ended}), {cut.tokens:,} tokens, from {newest.source}")
    print(f"{between} of {len(versions)} fragments")
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        print(f"  {name:{width}}  {value:.6g}")
    if not figures:
        print(f"the task {model.spec.task} has no figures to evaluate")
    return 0


def _warn_of_difference(model: RunModel) -> None:
    if model.differs:
        print(f"note: the values fit, but the task differs: {model.differs}", file=sys.stderr)


def generate(options: GenerateOptions, _: Common) -> int:
    from islands.model.jax_workload import JaxWorkload
    from islands.tasks.task import Sampler

    newest = newest_values(named(options.folder))
    model = model_of(newest, options.task, options.task_settings)
    workload = model.workload
    if not isinstance(workload, JaxWorkload) or not isinstance(workload.task, Sampler):
        raise UserError(
            f"the task {model.spec.task} has no method `sample`, so it cannot continue a text; "
            "islands.tasks.task.Sampler says what it takes"
        )
    params = workload.params_of(model.spec.settings, model.values)
    _warn_of_difference(model)
    show_text(_pieces(workload.task, params, options), options.prompt)
    return 0


def _pieces(sampler: "Sampler", params: "PyTree", options: GenerateOptions) -> Iterable[bytes]:
    prompt = options.prompt.encode(errors="surrogateescape")
    try:
        yield from sampler.sample(
            params,
            prompt,
            options.count,
            temperature=options.temperature,
            seed=options.seed,
        )
    except Exception as error:  # the user's own code may raise anything
        raise task_error(error, "the task's sampling failed") from error


def show_text(pieces: Iterable[bytes], prompt: str) -> None:
    """Print a text piece by piece; what is no text, or none here, is replaced."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # it need not be UTF-8
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    print(prompt, end="", flush=True)
    for piece in pieces:
        print(decoder.decode(piece), end="", flush=True)
    print(decoder.decode(b"", final=True))


def export(options: ExportOptions, _: Common) -> int:
    file = options.file
    assert file is not None, "options without a file are refused"
    one = options.form is ExportForm.FILE
    if file.exists() and not (one and options.overwrite):
        raise UserError(f"{file} exists; choose another name" + ", or give --overwrite" * one)
    if not file.parent.is_dir():
        raise UserError(f"{file} cannot be written: there is no folder {file.parent}")
    newest = newest_values(named(options.folder))
    metadata = metadata_of(newest.spec, newest.fingerprint, newest.cut)
    layout = None if newest.plan is None else newest.plan.layout
    arrays = converted(newest.arrays, options.dtype, layout)
    write = {ExportForm.FOLDER: write_folder, ExportForm.ORBAX: write_orbax}
    write.get(options.form, write_arrays)(file, arrays, metadata)
    written = [file] if one else [each for each in file.rglob("*") if each.is_file()]
    first, last = min(newest.cut.versions), max(newest.cut.versions)
    size_bytes = sum(each.stat().st_size for each in written)
    print(
        f"{file}: tensors: {len(arrays)}, {size(size_bytes)}, versions {first} to {last}, after "
        f"{newest.cut.tokens:,} tokens of run {newest.spec.settings.run}"
    )
    return 0
