"""`islands init`: a first YAML file of a run, from options or from answers on a terminal."""

import sys

import yaml

from islands.cli.parsing import Common, parse
from islands.cli.schema import flatten, keys_of
from islands.files.run_files import TOKEN_FILE
from islands.files.whole_files import save
from islands.protocol.errors import SettingsError, UserError
from islands.protocol.identities import NAME
from islands.settings.commands import InitOptions
from islands.settings.host import RunOptions

QUESTIONS = {
    "task": "task, as package.module:Class",
    "learners": "learners on this machine",
    "tokens": "tokens after which the run ends, or null",
    "learning_rate": "peak of the learning rate",
    "listen": "host:port for learners of other hosts, or null",
}
HEAD = """\
# See what the run needs, then start it; the same command goes on where it was:
#
#     islands run {file} --dry-run
#     islands run {file} --folder runs/{name}
#
# Every key is an option, too: islands run --help lists those that matter.

"""
OTHER_HOSTS = """
Learners of other hosts need a token; make it before the run, and copy it to them:

    python -c "import secrets; print(secrets.token_urlsafe(32))" > token && chmod 600 token
"""


def run(options: InitOptions, common: Common) -> int:
    """Write the file, and print how the run is started; return the exit code."""
    file = options.file
    if file.exists():
        raise UserError(f"{file} exists; name another file, as in: islands init second.yaml")
    if sys.stdin.isatty() and {*(common.given or ())} <= {"file"}:
        options = _asked(options)
    text = yaml.safe_dump(_settings(options), sort_keys=False)
    save(file, (HEAD.format(file=file, name=_name(options)) + text).encode())
    print(f"{file} holds the run, and begins with the commands that start it:\n")
    print(
        f"    islands run {file} --dry-run\n    islands run {file} --folder runs/{_name(options)}"
    )
    print(OTHER_HOSTS * (options.listen is not None), end="")
    return 0


def _name(options: InitOptions) -> str:
    """Return the name of the run: that of the file, if a run can have it."""
    return options.file.stem if NAME.fullmatch(options.file.stem) else "run"


def _settings(options: InitOptions) -> dict[str, object]:
    """Return what the file holds, once `islands run` understands it."""
    tokens = {} if options.tokens is None else {"budget_tokens": options.tokens}
    run = {"run": _name(options), "learning_rate": options.learning_rate, **tokens}
    settings: dict[str, object] = {
        "task": options.task,
        "preset": options.preset.value,
        "learners": options.learners,
        "run": run,
    }
    if options.listen is not None:
        settings |= {"listen": options.listen, "token_file": TOKEN_FILE}
    words = [f"--{key}={value}" for key, value in flatten(settings, keys_of(RunOptions)).items()]
    parse(RunOptions, words, program="islands run", description="")
    return settings


def _asked(options: InitOptions) -> InitOptions:
    """Ask for each setting until its answer can work; an empty one takes the default."""
    words = [str(options.file)]
    for name, question in QUESTIONS.items():
        default = getattr(options, name)
        while True:
            try:
                answer = input(f"{question} [{'null' if default is None else default}]: ").strip()
                more = [f"--{name}={answer}"] if answer else []
                options, _ = parse(
                    InitOptions, words + more, program="islands init", description=""
                )
                _settings(options)
            except EOFError:
                raise UserError("not all was answered, so nothing was written") from None
            except SettingsError as error:
                print(error)
            else:
                words += more
                break
    return options
