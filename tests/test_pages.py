"""What a page shows is there: links lead somewhere, commands are understood, snippets parsed."""

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

import islands
from islands.cli.commands import COMMANDS, PROGRAMS
from islands.cli.parsing import parse
from islands.cli.schema import keys_of
from islands.costs.prices import read_prices
from islands.engines.needs import read_islands
from islands.protocol.errors import SettingsError
from tests.environment import ROOT
from tests.pages import Page, all_pages, lines_of

PAGES = all_pages()
BY_PATH = {page.path: page for page in PAGES}
SHELL = ("bash", "console", "sh")
SHOWN = ("", "text", "ini", "promql")
"""Languages of what is only looked at; in blocks without a language, lines of ours are commands."""
OURS = re.compile(r"(islands (?=[a-z])|python -m (islands|tests)\b|make [a-z])")
PATH = re.compile(r"(?:examples|deploy|tests|docs)/[\w./@-]*\w")
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OF_RUN = {"run", "task", "task_settings", "preset", "learners"}
"""Keys by which a file of a run is known; `run` of SkyPilot's own files is a text."""
READERS = [*dict.fromkeys(one.options for one in PROGRAMS.values() if one.has_file)]
COMMON = ("help", "h", "debug", "config", "print_config", "dry_run", "step_time_s", "version")


def by_page(page: Page) -> str:
    return page.path


# --------------------------------------------------------------------------------------- links


def wrong_link(page: Page, link: str) -> str | None:
    """Return why a link leads nowhere; None if it leads somewhere, or out of the repository."""
    parts = urlsplit(link)
    if parts.scheme in ("http", "https", "mailto"):
        return None
    target = (page.file.parent / parts.path).resolve() if parts.path else page.file
    if not target.is_relative_to(ROOT) or not target.is_file():
        return f"{page.path} links {link}, which is no file of the repository"
    path = target.relative_to(ROOT).as_posix()
    if parts.fragment and parts.fragment not in BY_PATH.get(path, Page(path)).anchors:
        return f"{page.path} links {link}, and that page has no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_every_link_leads_somewhere(page: Page) -> None:
    wrong = (wrong_link(page, link) for link in page.links)
    assert [one for one in wrong if one] == []


@pytest.mark.parametrize("link", ["absent.md", "#absent", "../SECURITY.md#absent", "../deploy/"])
def test_a_link_that_leads_nowhere_is_seen(link: str) -> None:
    assert wrong_link(Page("docs/runs.md"), link)


def test_every_page_that_code_names_is_there() -> None:
    named = re.compile(r"\bdocs/[\w/]+\.md(?:#[\w-]+)?")
    kinds = (".py", ".yaml", ".toml", ".mjs", ".html", ".service")
    for top in ("islands", "messaging", "examples", "deploy", "tests"):
        for file in (ROOT / top).rglob("*"):
            if file.suffix not in kinds or file.name in ("test_tidy.py", "test_pages.py"):
                continue
            for name in named.findall(file.read_text(encoding="utf-8")):
                assert wrong_link(Page("README.md"), name) is None, (file, name)


def test_the_papers_that_code_cites_are_on_the_page_of_credits() -> None:
    number = re.compile(r"\b\d{4}\.\d{5}\b")
    cited: set[str] = set()
    for top in ("islands", "messaging", "examples"):
        for file in (ROOT / top).rglob("*.py"):
            cited |= {*number.findall(file.read_text(encoding="utf-8"))}
    assert cited == {*number.findall((ROOT / "docs" / "credits.md").read_text(encoding="utf-8"))}


# ------------------------------------------------------------------------------------ commands


def command_of(words: list[str]) -> tuple[str, list[str]] | None:
    """Return the program that a line starts, and its arguments; None if it is none of ours."""
    if words[:2] == ["python", "-m"] and len(words) > 2:
        words = [f"python -m {words[2]}", *words[3:]]
        return (words[0], words[1:]) if words[0] in PROGRAMS else None
    for count in (3, 2, 1):
        name = " ".join(words[1 : count + 1])
        if words[0] == "islands" and name in COMMANDS:
            return f"islands {name}", words[count + 1 :]
    return None


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line of shell, without what it redirects."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    for token in lexer:
        if not {*token} <= {*"();<>|&"}:
            words.append(token)
        elif {"<", ">"} & {*token}:
            words = words[:-1] if words and words[-1].isdigit() else words
            next(lexer, None)
        else:
            yield words
            words = []
    yield words


def check_line(line: str) -> None:
    """Refuse a line of shell that names a command, an option, a target or a file that is not there.

    Raises:
        SettingsError: a command of ours does not understand its arguments.
    """
    for path in PATH.findall(line):
        assert (ROOT / path).exists() or "*" in path, f"there is no {path}"
    for extra in re.findall(r"(?:'\.|islands)\[([\w,-]+)\]", line):
        assert {*extra.split(",")} <= {*EXTRAS}, f"there is no extra {extra}"
    for each in simple_commands(line):
        words = [word for word in each if not re.match(r"[A-Z_]+=", word)]
        del words[: words[:1] in (["sudo"], ["exec"], ["nohup"])]
        words[:1] = [re.sub(r"^\.venv/bin/", "", one) for one in words[:1]]
        if words[:1] == ["make"]:
            wrong = [one for one in words[1:] if one not in TARGETS]
            assert not wrong, f"make has no target {wrong}"
        if words[:1] == ["islands"] or words[:2] == ["python", "-m"]:
            check_command(words)


def check_command(words: list[str]) -> None:
    found = command_of(words)
    if found is None and words[0] == "python":
        file = ROOT / Path(*words[2].split("."))
        ours = words[2].partition(".")[0] in ("islands", "messaging", "tests")
        there = (file / "__main__.py").is_file() or file.with_suffix(".py").is_file()
        assert there or not ours, f"there is no {words[2]}"
    elif found is None:
        assert {"--help", "--version"} & {*words}, f"{' '.join(words)} is no command"
    elif not {"--help", "-h"} & {*words}:
        check_arguments(*found)


def check_arguments(program: str, arguments: list[str]) -> None:
    """Have a command read its line, without files of runs that are the reader's own."""
    given: list[str] = []
    for before, word in zip(["", *arguments], arguments, strict=False):
        is_config = word.endswith(".yaml") and (before[:2] != "--" or before == "--config")
        if not is_config or program == "islands init":
            given.append(word)
        elif (ROOT / word).is_file():
            given.append(str(ROOT / word))
        elif before == "--config":
            given.pop()
    with suppress(SystemExit):  # of --print_config
        parse(PROGRAMS[program].options, given, program=program)


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_every_command_is_understood(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, language, text in page.blocks:
        if language in SHELL:
            bash = ["bash", "-n"]
            read = subprocess.run(bash, input=text, text=True, capture_output=True, check=False)
            assert (read.returncode, read.stderr) == (0, ""), f"{page.path}:{number}"
        if language in SHELL or not language:
            for line in lines_of(text):
                if language or OURS.match(line):
                    checked(f"{page.path}:{number}: {line}", line)


def checked(where: str, line: str) -> None:
    try:
        check_line(line)
    except (AssertionError, SettingsError, ValueError) as error:
        pytest.fail(f"{where}\n{error}")


@pytest.mark.parametrize(
    "line",
    [
        "islands rnu examples/line.yaml",
        "islands run --learnesr 3",
        "islands run --learners minus",
        "islands status --folder a --jsn",
        "python -m islands.sincer",
        "python -m tests.benchmarks.absent",
        "make absent",
        "islands run examples/absent.yaml",
        "pip install '.[absent]'",
    ],
)
def test_a_command_that_is_wrong_is_seen(line: str) -> None:
    with pytest.raises((AssertionError, SettingsError)):
        check_line(line)


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_commands_in_sentences_exist_and_have_their_options(page: Page) -> None:
    for span in page.spans:
        words = span.split()
        if words[:1] != ["islands"] or len(words) < 2 or not words[1].isalpha():
            continue
        groups = {name.partition(" ")[0] for name in COMMANDS}
        found = command_of(words)
        assert found or (len(words) == 2 and words[1] in groups), f"{page.path}: {span}"
        if found:
            check_options(f"{page.path}: {span}", *found)


def check_options(where: str, program: str, arguments: list[str]) -> None:
    keys = keys_of(PROGRAMS[program].options)
    for word in arguments:
        name = word.partition("=")[0][2:].replace("-", "_")
        if word.startswith("--"):
            mapped = any(name.startswith(f"{key}.") for key, one in keys.items() if one.is_mapping)
            assert name in keys or name in COMMON or mapped, where


# ------------------------------------------------------------------------------------ snippets


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_every_snippet_is_parsed(page: Page, tmp_path: Path) -> None:
    """Those of README, docs/runs.md and docs/recipes.md are run, too, by tests of their own."""
    for number, language, text in page.blocks:
        where = f"{page.path}:{number}"
        match language:
            case "python":
                check_python(where, text)
            case "yaml":
                check_yaml(where, text, tmp_path / "run.yaml")
            case "json":
                for document in [text] if text.startswith("{\n") else text.splitlines():
                    json.loads(document)
            case "toml":
                tomllib.loads(text)
            case _:
                known = (*SHELL, *SHOWN, *(("{toctree}",) if page.path == "docs/index.md" else ()))
                assert language in known, f"{where}: nothing reads the language {language!r}"


def check_python(where: str, text: str) -> None:
    """Have a snippet parsed; what it names of islands must be there."""
    for node in ast.walk(ast.parse(text, filename=where)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "islands":
            file = ROOT / Path(*(node.module or "").split("."))
            file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
            assert file.is_file(), f"{where}: there is no {node.module}"
            source = file.read_text(encoding="utf-8")
            for one in node.names:
                assert re.search(rf"\b{one.name}\b", source), (
                    f"{where}: {node.module} has no {one.name}"
                )
        match node:
            case ast.Attribute(ast.Name("islands"), attr) if attr != "torch":
                assert attr in islands.__all__, f"{where}: islands has no {attr}"


def check_yaml(where: str, text: str, file: Path) -> None:
    """Have a snippet parsed; one of a run's file must be understood by a command that reads it."""
    for each in yaml.safe_load_all(text):
        if not isinstance(each, dict):
            continue
        if "islands" in each:
            read_islands(each["islands"])
        file.write_text(yaml.safe_dump(each))
        if "currency" in each:
            read_prices(each, where)
        elif isinstance(each.get("run", {}), dict) and {*each} & OF_RUN:
            wrong = [*map(partial(wrong_file, file), READERS)]
            assert None in wrong, f"{where}: {wrong[0]}"


def wrong_file(file: Path, options: type) -> str | None:
    """Return why a command does not understand a file; None if it does."""
    try:
        parse(options, [str(file)], program="islands")
    except SettingsError as error:
        return str(error)
    return None


def test_a_key_that_is_wrong_is_seen(tmp_path: Path) -> None:
    check_yaml("here", "run: {interval_steps: 12}\nlearners: 2\n", tmp_path / "run.yaml")
    with pytest.raises(AssertionError, match="interval_step"):
        check_yaml("here", "run: {interval_step: 12}\n", tmp_path / "run.yaml")
    with pytest.raises(AssertionError, match="learnesr"):
        check_yaml("here", "learnesr: 2\ntask: a:B\n", tmp_path / "run.yaml")
