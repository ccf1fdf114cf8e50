"""`islands generate RUN --prompt TEXT`: what the newest published values of a run add to a text."""

import codecs
import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from islands.cli.evaluate import warn_of_difference
from islands.cli.parsing import Common
from islands.protocol.errors import UserError
from islands.settings.run_reading import GenerateOptions, named

if TYPE_CHECKING:
    from jaxtyping import PyTree

    from islands.run.records.run_model import RunModel
    from islands.tasks.task import Sampler


def run(options: GenerateOptions, _: Common) -> int:
    """Print the prompt and what the model adds to it, as it comes; return the exit code.

    Raises:
        UserError: the folder holds no values, or its task does not sample.
        TaskError: the task's sampling failed.
    """
    from islands.run.records.run_model import model_of
    from islands.run.records.run_values import newest_values

    found = newest_values(named(options.folder))
    model = model_of(found, options.task, options.task_settings)
    sampler, params = _sampler(model)
    warn_of_difference(model)
    show(_pieces(sampler, params, options), options.prompt)
    return 0


def _sampler(model: "RunModel") -> "tuple[Sampler, PyTree]":
    """Return the task and its parameters.

    Raises:
        UserError: the task does not sample.
    """
    from islands.model.jax_workload import JaxWorkload
    from islands.tasks.task import Sampler

    workload = model.workload
    if not isinstance(workload, JaxWorkload) or not isinstance(workload.task, Sampler):
        raise UserError(
            f"the task {model.spec.task} has no method `sample`, so it cannot continue a text; "
            "islands.tasks.task.Sampler says what it takes"
        )
    return workload.task, workload.params_of(model.spec.settings, model.values)


def _pieces(sampler: "Sampler", params: "PyTree", options: GenerateOptions) -> Iterable[bytes]:
    from islands.tasks.source_location import task_error

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


def show(pieces: Iterable[bytes], prompt: str) -> None:
    """Print a text piece by piece; what is no text, or none here, is replaced."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # it need not be UTF-8
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    print(prompt, end="", flush=True)
    for piece in pieces:
        print(decoder.decode(piece), end="", flush=True)
    print(decoder.decode(b"", final=True))
