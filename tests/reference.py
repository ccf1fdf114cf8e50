"""The pages of docs/reference, made from settings, commands, docstrings and errors.

Run ``python -m tests.reference`` after a change of one, and read what it changed.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path

import islands
from islands.cli.commands import COMMANDS, PROGRAMS, Command
from islands.cli.help_text import ABOUT, TITLES
from islands.cli.schema import Key, keys_of
from islands.metrics import site
from islands.protocol import errors
from islands.protocol.settings.presets import PRESETS
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import Setting, facts_of
from islands.settings.groups import RunFile
from islands.settings.host import RunOptions
from islands.settings.run_spec import RunSpec

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
MADE = "<!-- `python -m tests.reference` writes this page; a test holds it. -->\n\n"
RUN = "run."
HOST = "islands.settings.host", "islands.settings.groups"
"""Modules whose options are settings of a host; those of other modules belong to one command."""
OF_SPEC = tuple(each.name for each in fields(RunSpec) if each.name != "settings")
"""What a run is, beside its settings; `RunSpec.changed_from` refuses another value of each."""


# --------------------------------------------------------------------------------- one setting


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting: its key, its text, and the class that declares it."""

    key: Key
    about: str
    owner: type

    @property
    def field(self) -> str:
        return self.key.name.rpartition(".")[2]

    @property
    def fact(self) -> Setting:
        return facts_of(self.key.group)[self.field]


def entries_of(options: type) -> Iterator[Entry]:
    again = keys_of(options)
    for key in keys_of(options).values():
        name = key.name.rpartition(".")[2]
        owner = next(one for one in key.group.__mro__ if name in inspect.get_annotations(one))
        about = {
            setting: text
            for one in reversed(key.group.__mro__)
            for setting, text in ABOUT.findall(
                inspect.cleandoc(one.__doc__ or "").partition("\nArgs:\n")[2]
            )
        }
        changes = key.default != again[key.name].default
        yield Entry(
            Key(key.name, key.hint, ..., key.group, key.positional, key.advanced)
            if changes
            else key,
            " ".join(about[name].replace("None", "null").split()),
            owner,
        )


def value(entry: Entry) -> str:
    """Return what may be given, with its range."""
    fact, wanted = entry.fact, entry.key.wanted
    if (fact.least, fact.above, fact.most, fact.below) == (None,) * 4:
        return wanted
    return f"{wanted}; a number is {fact.range}" if ", or " in wanted else f"{wanted}, {fact.range}"


def shown(given: object) -> str:
    if given is ...:
        return "made at each start"
    if given in (None, (), {}, ""):
        return "null" if given is None else "empty"
    if isinstance(given, tuple):
        return f"`{','.join(map(str, given))}`"
    if isinstance(given, bool):
        return f"`{given}`".lower()
    return f"`{given:g}`" if isinstance(given, float) else f"`{given}`"


def default(entry: Entry) -> str:
    """Return the default; of a setting of a run, also those of presets that have another."""
    told = shown(entry.key.default)
    if not entry.key.name.startswith(RUN):
        return told
    others: dict[str, list[str]] = {}
    for preset, settings in PRESETS.items():
        other = attrgetter(entry.key.name.removeprefix(RUN))(settings)
        if other != entry.key.default:
            others.setdefault(shown(other), []).append(f"`{preset}`")
    return told + "".join(f"; {one} with {_listed(names)}" for one, names in others.items())


def may_change(name: str) -> bool:
    """Return whether a run that is resumed may have another value."""
    if name.startswith(RUN):
        return facts_of(RunSettings)[name.removeprefix(RUN).partition(".")[0]].resumable
    return name not in OF_SPEC


def section(entry: Entry, *sentences: str) -> str:
    more = [*sentences]
    if entry.fact.with_gossip is not None:
        more.append(f"Where learners gossip it is {shown(entry.fact.with_gossip)}.")
    if entry.fact.taken_by:
        more.append(f"Taken by the kinds {_listed(f'`{one}`' for one in entry.fact.taken_by)}.")
    if entry.key.advanced:
        more.append("Few need it: only `--help all` shows it.")
    facts = f"**Value**: {value(entry)}. Default: {default(entry)}. {' '.join(more)}".rstrip()
    return f"### `{entry.key.name}`\n\n{_sentence(entry.about)} {facts}\n"


def title_of(group: type) -> str:
    return TITLES.get(group, inspect.cleandoc(group.__doc__ or "").partition("\n")[0].rstrip("."))


def grouped(entries: Iterable[Entry]) -> dict[type, list[Entry]]:
    groups: dict[type, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.owner, []).append(entry)
    return groups


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _sentence(text: str) -> str:
    """A text as a sentence of a page: what Markdown would read as its own is escaped."""
    first = text[0].upper() if text[0].isascii() else text[0]  # a symbol stays what it is
    parts = re.split(r"(`[^`]*`)", f"{first}{text[1:]}".rstrip("."))
    plain = (one if one[:1] == "`" else re.sub(r"([*<\[])", r"\\\1", one) for one in parts)
    return "".join(plain) + "."


# --------------------------------------------------------------------------------------- pages


def run_settings() -> str:
    entries = [
        each
        for each in entries_of(RunOptions)
        if each.owner is RunFile or each.key.name.startswith(RUN)
    ]
    names = (".".join(each.key.name.split(".")[:2]) for each in entries)
    fixed = dict.fromkeys(f"`{name}`" for name in names if not may_change(name))
    text = (
        "# Settings of a run\n\n"
        "All members of a run have these in common. They are given where the run begins, to "
        f"{_listed(f'`{one}`' for one in _with(RunFile))}; members get them from the "
        "supervisor. In a YAML file a dot is a level; on the command line "
        "`run.interval_steps` is `--run.interval_steps`, and in the environment "
        "`ISLANDS_RUN_RUN__INTERVAL_STEPS`. The defaults are those of the preset `decoupled` at 6 "
        "steps; with a longer `run.interval_steps` it sets `run.fragments` and `run.outer` "
        "otherwise ([howto/tuning.md](../howto/tuning.md)).\n\n"
        f"A start in the run's folder may **not** change {_listed(fixed)}: another value is "
        "refused, with the name and both values. It may change all others. A start with "
        "`--resume CHECKPOINT` may change all but `run.run`, `run.merge_moments`, `run.seed`, "
        "`task` and `task_settings`; `islands resume`, which ends a pause, changes none.\n"
    )
    for group, members in grouped(entries).items():
        text += f"\n## {title_of(group)}\n\n"
        text += "\n".join(section(one, _changes(one.key.name)) for one in members)
    return text


def _changes(name: str) -> str:
    may = "may" if may_change(name) else "may not"
    return f"A start in the run's folder **{may}** change it."


def _with(group: type) -> list[str]:
    """The programs that have options of a group."""
    return [
        name
        for name, command in PROGRAMS.items()
        if any(each.owner is group for each in entries_of(command.options))
    ]


def host_entries() -> dict[type, list[tuple[Entry, list[str]]]]:
    """The settings of a host by the class that declares them, each with the programs it is of."""
    groups: dict[type, dict[str, tuple[Entry, list[str]]]] = {}
    for program, command in PROGRAMS.items():
        for entry in entries_of(command.options):
            if entry.owner.__module__ in HOST and entry.owner is not RunFile:
                members = groups.setdefault(entry.owner, {})
                members.setdefault(entry.key.name, (entry, []))[1].append(program)
    return {group: [*members.values()] for group, members in groups.items()}


def host_settings() -> str:
    text = (
        "# Settings of a host\n\n"
        "What a process is started with, where it runs. Each start may be given other values of "
        "all of these: they belong to it, and not to the run. In a YAML file "
        "each is a key; in the environment `listen` is `ISLANDS_RUN_LISTEN` of `islands run`, and "
        "[commands](commands.md) has what the variables of each command begin with.\n"
    )
    for group, members in host_entries().items():
        text += f"\n## {title_of(group)}\n\n"
        alike = all(programs == members[0][1] for _, programs in members)
        text += f"{_has(members[0][1])}\n\n" if alike else ""
        sections = (section(one, *(() if alike else (_has(of),))) for one, of in members)
        text += "\n".join(sections)
    return text


def _has(programs: list[str]) -> str:
    return f"Of {_listed(f'`{one}`' for one in programs)}."


OPERATE, RESULTS = "commands_operate.md", "commands_results.md"
COMMANDS_ON = {
    OPERATE: r"status|add|drain|evict|pause|resume|invite|revoke|stop"
    r"|save|checkpoints|verify|backup|promote",
    RESULTS: r"logs|report|plot|cost|check|model|data|lab",
}
"""The pages of commands that neither start a run nor join one."""


def _commands_on(page: str) -> str:
    on = ((name, each) for name, each in PROGRAMS.items() if page == _page_of(name))
    return "".join(command_section(name, each) for name, each in on)


def _page_of(program: str) -> str:
    on = (page for page, names in COMMANDS_ON.items() if re.match(rf"islands ({names})\b", program))
    return next(on, "commands.md")


def commands_operate() -> str:
    return f"# Commands to a run in progress\n{_commands_on(OPERATE)}"


def commands_results() -> str:
    return f"# Commands on results, models, data, and the laboratory\n{_commands_on(RESULTS)}"


def commands() -> str:
    text = (
        "# Commands\n\n"
        "`--help` after a command lists the options that matter, `--help all` every one. Every "
        "command has `--debug`, which shows the traceback of an error. Where a command reads a "
        "YAML file (`CONFIG`, or `--config FILE`), its options may stand there, and "
        "`--print_config` prints them all. The environment wins over the file, and the command "
        "line over both. An option of a name with a dash is the same as with an underscore.\n\n"
        "This page has what starts a run or joins one; "
        f"[commands to a run in progress]({OPERATE}) and "
        f"[those on results, models, data, and the laboratory]({RESULTS}) follow.\n"
    )
    return text + _commands_on("commands.md")


def command_section(program: str, command: Command) -> str:
    entries = list(entries_of(command.options))
    own = [
        one
        for one in entries
        if one.owner.__module__ not in HOST and not one.key.name.startswith(RUN)
    ]
    shared = [
        group for group in grouped(entries) if group.__module__ in HOST and group is not RunFile
    ]
    places = [f"[{name}]" for name, has in (("CONFIG", command.has_file),) if has]
    places += [f"[{one.key.name}]" for one in entries if one.key.positional]
    known = program.removeprefix("islands ") in COMMANDS
    does = command.text if known else title_of(command.options).partition(": ")[2]
    text = f"\n## {program}\n\n{_sentence(does)}\n\n```text\n"
    text += f"{' '.join([program, *places, '[options]'])}\n```\n\n"
    if own:
        text += "| option | value | default | meaning |\n|---|---|---|---|\n"
        text += "".join(map(_row, own)) + "\n"
    links = [f"[{title_of(one)}](host_settings.md#{slug(title_of(one))})" for one in shared]
    if any(one.owner is RunFile for one in entries):
        links.append("[the settings of a run](run_settings.md)")
    if links:
        text += f"{'It also has' if own else 'It has'} {_listed(links)}.\n"
    text += "It has a dry run (`--dry-run`), which starts nothing.\n" * command.plans
    return text + f"Its environment variables begin with `{command.prefix}_`.\n"


def _row(entry: Entry) -> str:
    name = entry.key.name if entry.key.positional else f"--{entry.key.name}"
    cells = [f"`{name}`", value(entry), default(entry), _sentence(entry.about)]
    return f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |\n"


def processes() -> str:
    routes = re.findall(r"^`(/\w+)` +(.*)$", site.__doc__ or "", re.MULTILINE)
    _, _, tree = inspect.cleandoc(errors.__doc__ or "").partition("::\n\n")
    body, _, rest = tree.partition("\n\nFaults")
    text = (
        "# HTTP routes and exit codes\n\n## HTTP routes\n\n"
        "A hub answers these at its `--listen`, as does each process that has one. "
        "[metrics.md](../metrics.md) has who may ask, and [page.md](../page.md) the page under "
        "`/page/`.\n\n| route | answer |\n|---|---|\n"
    )
    text += "".join(f"| `{path}` | {answer} |\n" for path, answer in routes)
    codes = [
        (errors.DONE, "done"),
        (errors.FAILED, "not done, but the same command may succeed later"),
        (errors.OF_NO_USE, "the user must mend something first"),
        (errors.REPLACED, "a newer process owns the disk, and a restart would take it back"),
    ]
    text += "\n## Exit codes\n\n| code | meaning |\n|---|---|\n"
    text += "".join(f"| {code} | {meaning} |\n" for code, meaning in codes)
    text += f"\n## Errors\n\n```text\n{inspect.cleandoc(body)}\n```\n\n"
    return text + " ".join(f"Faults{rest}".split()) + "\n"


# -------------------------------------------------------------------------------------- Python

PYTHON = {f"islands.loops.{one}": "python_follow.md" for one in ("follow", "latest")}
"""Modules that are neither on the page of loops nor on that of the rest."""
LINE_MOST = 88
PARTS = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Reference|Deviation):(.*)$")
ITEM = re.compile(r"^ {4}(\w+): (.*)$")


def rendered(doc: str) -> str:
    """A docstring in Google's form as Markdown."""
    lines, part = [], ""
    for line in inspect.cleandoc(doc).splitlines():
        heading, item = PARTS.match(line), ITEM.match(line)
        if heading:
            part = heading[1]
            lines += [f"**{part}**:{heading[2]}", ""]
        elif item and part in ("Args", "Attributes", "Raises"):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif part and line:
            lines.append(f"  {line.strip()}" if lines[-1][:1] in ("-", " ") else line.strip())
        else:
            part = part if line else ""
            lines.append(line)
    return "\n".join(lines).strip() + "\n"


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = [*_arguments(node.args)]
    gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    name = f"{'async ' * isinstance(node, ast.AsyncFunctionDef)}def {node.name}"
    line = f"{name}({', '.join(arguments)}){gives}: ..."
    if len(line) > LINE_MOST:
        inner = "".join(f"    {one},\n" for one in arguments)
        line = f"{name}(\n{inner}){gives}: ..."
    return _python(line)


def _python(line: str) -> str:
    return f"```python\n{line}\n```\n\n".replace("'", '"')


def _arguments(given: ast.arguments) -> Iterator[str]:
    """Each argument with its type and default, without `self`."""
    places = [one for one in given.args if one.arg != "self"]
    nothing: list[ast.expr | None] = [None] * (len(places) - len(given.defaults))
    for one, value in zip(places, [*nothing, *given.defaults], strict=True):
        yield _argument(one, value)
    if given.kwonlyargs:
        yield "*"
    for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _argument(one, value)
    if given.kwarg:
        yield f"**{ast.unparse(given.kwarg)}"


def _argument(one: ast.arg, given: ast.expr | None) -> str:
    equals = " = " if one.annotation else "="
    return ast.unparse(one) + (f"{equals}{ast.unparse(given)}" if given else "")


def public_names() -> Mapping[str, tuple[str, str]]:
    """The module that defines each public name, and its name there."""
    own = {f"islands.{one}": (islands.PLACES.get(one, "islands"), one) for one in islands.__all__}
    tree = ast.parse((ROOT / "islands" / "torch.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            own |= {f"islands.torch.{one.name}": (node.module, one.name) for one in node.names}
    return own


def python() -> str:
    text = (
        "# Python: tasks and runs\n\nWhat a user's own code needs of `islands`; "
        "[tasks.md](../tasks.md) says how it is used. [Loops](python_loops.md), and "
        "[who follows a run](python_follow.md), have pages of their own.\n"
    )
    return text + _described("python.md")


def python_loops() -> str:
    text = "# Python: training loops of one's own\n\n[own_loops.md](../own_loops.md) says how"
    return f"{text} these are used.\n" + _described("python_loops.md")


def python_follow() -> str:
    text = "# Python: following a run\n\n[howto/serving.md](../howto/serving.md) says how"
    return f"{text} these are used.\n" + _described("python_follow.md")


def _described(page: str) -> str:
    text = ""
    for name, (module, inner) in public_names().items():
        loops = "python_loops.md" if module.startswith("islands.loops.") else "python.md"
        if page != PYTHON.get(module, loops):
            continue
        path = ROOT / Path(*module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        nodes = ast.parse(file.read_text()).body
        kinds = ast.ClassDef | ast.FunctionDef
        node = next(one for one in nodes if isinstance(one, kinds) and one.name == inner)
        text += f"\n## {name}\n\n"
        text += signature(node) if isinstance(node, ast.FunctionDef) else ""
        text += rendered(ast.get_docstring(node) or "")
        if isinstance(node, ast.ClassDef):
            text += class_body(name, node)
    return text


def class_body(name: str, node: ast.ClassDef) -> str:
    """The constructor, if its arguments are described, and what is public and described."""
    text = ""
    for each in node.body:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        doc = ast.get_docstring(each)
        is_property = any(ast.unparse(one) == "property" for one in each.decorator_list)
        if each.name == "__init__" and "Args:" in (ast.get_docstring(node) or ""):
            text += "\n" + signature(each).rstrip() + "\n"
        elif each.name[0] != "_" and (doc or is_property):
            of = f": {ast.unparse(each.returns)}" if each.returns else ""
            head = _python(f"{each.name}{of}") if is_property else signature(each)
            text += f"\n### {name}.{each.name}\n\n{head}{rendered(doc or '')}".rstrip() + "\n"
    return text


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands,
    OPERATE: commands_operate,
    RESULTS: commands_results,
    "host_settings.md": host_settings,
    "processes.md": processes,
    "python.md": python,
    "python_follow.md": python_follow,
    "python_loops.md": python_loops,
    "run_settings.md": run_settings,
}


def page(name: str) -> str:
    title, _, rest = PAGES[name]().partition("\n\n")
    return f"{title}\n\n{MADE}{rest}"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in PAGES:
        (FOLDER / name).write_text(page(name))
