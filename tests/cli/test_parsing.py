"""Settings from files, environment and command line: who wins, and what is refused with a hint."""

import errno
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from islands.cli.command import main
from islands.cli.parsing import Common, parse
from islands.lab.settings.fleets import GoodputOptions
from islands.protocol import errors
from islands.protocol.settings.choices import Automatic, PaceBy
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.settings.commands import AddOptions, OperatorOptions, RemoveOptions
from islands.settings.host import (
    LearnerOptions,
    ObserverOptions,
    RunOptions,
    SupervisorOptions,
    SyncerOptions,
)

T = TypeVar("T")

PROGRAMS: dict[type, str] = {
    RunOptions: "islands run",
    AddOptions: "islands add",
    GoodputOptions: "islands lab simulate goodput",
    OperatorOptions: "islands stop",
    RemoveOptions: "islands drain",
    SyncerOptions: "python -m islands.syncer",
    SupervisorOptions: "python -m islands.supervisor",
    LearnerOptions: "python -m islands.learner",
    ObserverOptions: "python -m islands.observer",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(options_class: type[T], *arguments: str) -> T:
    return parse(
        options_class, list(arguments), program=PROGRAMS[options_class], description="Test."
    )[0]


def refusal(options_class: type, *arguments: str) -> str:
    with pytest.raises(errors.SettingsError) as refused:
        read(options_class, *arguments)
    return str(refused.value)


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


# --- who wins ---------------------------------------------------------------------------------


def test_the_later_source_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.yaml", "run: {interval_steps: 5, fragments: 5, seed: 3}\nlearners: 2\n")
    assert read(RunOptions).file.run.interval_steps == 6
    monkeypatch.setenv("ISLANDS_RUN_RUN__FRAGMENTS", "4")
    monkeypatch.setenv("ISLANDS_RUN_RUN__SEED", "4")
    found = read(RunOptions, "--run.seed", "5", "--config", "a.yaml")
    run = found.file.run
    assert (run.interval_steps, run.fragments, run.seed, found.learners) == (5, 4, 5, 2)


def test_of_several_files_the_last_wins() -> None:
    write("a.yaml", "learners: 2\nrun: {seed: 1, fragments: 7}\n")
    write("b.yaml", "run: {seed: 2}\n")
    found = read(RunOptions, "a.yaml", "--config", "b.yaml")
    assert (found.learners, found.file.run.seed, found.file.run.fragments) == (2, 2, 7)


def test_the_environment_may_name_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.yaml", "learners: 2\n")
    monkeypatch.setenv("ISLANDS_RUN_CONFIG", "a.yaml")
    options, common = parse(RunOptions, [], program="islands run", description="")
    assert options.learners == 2
    assert common.config == (Path("a.yaml"),)


@pytest.mark.parametrize("command", [RunOptions, SyncerOptions, SupervisorOptions])
def test_one_file_serves_the_run_and_its_parts(command: type) -> None:
    text = "task: a:b\nrun: {seed: 3}\nlearners: 2\nevaluate_every_s: 3\nkey_file: k\nname: s\n"
    write("a.yaml", text + "folder: runs/x\nlisten: 127.0.0.1:0\nsyncers: [x]\n")
    found: Any = read(command, "--config", "a.yaml")
    assert (found.file.task, found.file.run.seed, found.folder) == ("a:b", 3, Path("runs/x"))
    if command is not RunOptions:
        assert "islands run has it" in refusal(command, "--learners", "2")


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "value"), [("2", 2), ("auto", Automatic.AUTO), ("null", None)])
def test_a_number_or_a_word(word: str, value: object) -> None:
    write("a.yaml", f"run: {{quorum: {word}}}\n")
    told = read(RunOptions, "--run.quorum", word).file.run
    assert told == read(RunOptions, "a.yaml").file.run
    assert told.quorum == value
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=RunSettings)
    assert (sent, type(sent.quorum)) == (told, type(value))


def test_values_of_all_kinds() -> None:
    text = "run: {learning_rate: 1e-2, pace_by: slowest, quorum: null, budget_tokens: 1_000}\n"
    write("a.yaml", text + "task_settings: {rows: 4, deep: {a: 1e-3}}\ndevices: ['0', 1-2]\n")
    found = read(
        RunOptions,
        *("a.yaml", "--learners", "2", "--task_settings.rows", "8", "--folder", "f", "--extend"),
        "--run.outer.nesterov=false",
    )
    run = found.file.run
    assert (run.learning_rate, run.pace_by, run.quorum) == (0.01, PaceBy.SLOWEST, None)
    assert (run.budget_tokens, run.outer.nesterov, found.extend) == (1000, False, True)
    assert found.file.task_settings == {"rows": 8, "deep": {"a": 0.001}}
    assert (found.devices, found.folder) == (("0", "1-2"), Path("f"))


def test_the_keys_of_a_mapping_are_options_however_deep() -> None:
    write("a.yaml", "task_settings: {rows: '4', deep: {a: 1}}\n")
    given = ("--task_settings.deep.b", "8", "--task_settings.note", "- none")
    settings = {"rows": "4", "deep": {"a": 1, "b": 8}, "note": "- none"}
    assert read(RunOptions, "a.yaml", *given).file.task_settings == settings


@pytest.mark.parametrize("given", ["7070,7071", "[7070, 7071]"])
def test_texts_that_look_like_numbers(given: str) -> None:
    assert read(LearnerOptions, "--supervisor", given).supervisor == ("7070", "7071")
    assert read(LearnerOptions, "--name", "010").name == "010"


@pytest.mark.parametrize("given", ["a:1,b:2", "[a:1, b:2]"])
def test_several_addresses(given: str) -> None:
    assert read(LearnerOptions, "--supervisor", given).supervisor == ("a:1", "b:2")
    write("a.yaml", f"supervisor: {given}\n")
    assert read(LearnerOptions, "--config", "a.yaml").supervisor == ("a:1", "b:2")


def test_a_word_with_a_colon_is_a_task_unless_a_file_has_that_name() -> None:
    write("12:00.yaml", "learners: 7\n")
    assert read(RunOptions, "12:00.yaml").learners == 7
    assert read(RunOptions, "my.module:Task").file.task == "my.module:Task"


def test_a_switch_does_not_swallow_what_stands_behind_it() -> None:
    write("a.yaml", "learners: 2\n")
    found = read(RunOptions, "--folder", "x", "--extend", "a.yaml")
    assert (found.extend, found.learners) == (True, 2)


def test_dashes_and_underscores_are_the_same() -> None:
    arguments = ["--token-file", "a-b", "--dry-run", "--step-time-s", "0.5"]
    options, common = parse(SyncerOptions, arguments, program="islands.syncer", description="")
    assert options.connecting.token_file == Path("a-b")
    assert replace(common, words=()) == Common(
        dry_run=True, step_time_s=0.5, given=frozenset({"token_file"})
    )


def test_an_option_of_two_groups_is_set_in_both() -> None:
    found = read(SyncerOptions, "--tls_certificate", "c.pem", "--tls_key", "k.pem")
    assert found.listening.tls_certificate == found.connecting.tls_certificate == Path("c.pem")


def test_what_a_command_is_about_needs_no_option() -> None:
    found = read(RemoveOptions, "learner-1", "--folder", "runs/x")
    assert (found.name, found.folder) == ("learner-1", Path("runs/x"))
    assert read(AddOptions, "3", "--folder", "x").count == 3


# --- print_config -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (RunOptions, ("--run.pace_by", "slowest", "--task_settings", "{rows: 3}", "--folder", "x")),
        (
            SyncerOptions,
            ("--run.learning_rate", "1e-5", "--tls_key", "k", "--tls_certificate", "c"),
        ),
        (SupervisorOptions, ("--syncers", "a,b", "--extend")),
        (LearnerOptions, ("--supervisor", "a,b", "--devices", "0", "--name", "12")),
        (ObserverOptions, ("--evaluate_every_s", "3")),
    ],
)
def test_printed_settings_read_back_as_the_same(
    command: type, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--print_config > all.yaml` is a config of the very same settings."""
    with pytest.raises(SystemExit) as ended:
        read(command, *arguments, "--print_config")
    assert ended.value.code == 0
    write("all.yaml", capsys.readouterr().out)
    assert read(command, "--config", "all.yaml") == read(command, *arguments)


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "run: {intervall_steps: 3}",
            "unknown key run.intervall_steps in a.yaml; did you mean run.interval_steps?",
        ),
        ("interval_steps: 3", "unknown key interval_steps in a.yaml; did you mean run.int"),
        (
            "learning_rate: 3",
            "unknown key learning_rate in a.yaml; did you mean run.learning_rate?",
        ),
        (
            "run: {evict_s: 3}",
            "unknown key run.evict_s in a.yaml; did you mean run.timing.evict_s?",
        ),
        ("zzz: 3", "unknown key zzz in a.yaml; --help all lists what there is"),
        ("token: hush", "a.yaml holds token, a secret; keep it in a file of its own"),
        ("run: 3", "run is 3; it must hold settings, such as run.seed"),
        ("learners: many", "learners is many in a.yaml; it must be a whole number"),
        ("learners: null", "learners is null in a.yaml; it must be a whole number"),
        ("learners: 2.5", "learners is 2.5 in a.yaml; it must be a whole number"),
        ("learners: 2\nlearners: 3", "a.yaml, line 2: learners occurs twice"),
        ("learners: [", "a.yaml, line 2: no YAML:"),
        ("- 3", "a.yaml holds no settings; it must be a mapping"),
        ("listen: 3", "listen is 3 in a.yaml; it must be text, between quotes"),
        ("folder: 3", "folder is 3 in a.yaml; it must be a path, or null"),
        ("extend: 3", "extend is 3 in a.yaml; it must be true or false"),
        (
            "task_settings: 3",
            "task_settings is 3 in a.yaml; it must be a mapping such as {rows: 4}",
        ),
        ("learners: {}", "learners is {} in a.yaml; it must be a whole number"),
        ("? [a]\n: 3", "a.yaml, line 1: no YAML: found unhashable key"),
        ("task_settings: {1: 2}", "task_settings is {1: 2} in a.yaml; it must be a mapping"),
        ("run: {pace_by: fast}", "it must be one of median, fastest, slowest"),
        ("run: {learning_rate: x}", "run.learning_rate is x in a.yaml; it must be a number"),
        ("run: {learning_rate: -1}", "run.learning_rate is -1.0; it must be above 0, and finite"),
        ("run: {outer: {momentum: 1}}", "run.outer.momentum is 1.0; it must be in [0, 1)"),
        ("run: {timing: {evict_s: 1}}", "run.timing.evict_s is 1.0; it must be at least suspect_s"),
        ("a: " + "[" * 20_000, "a.yaml, line 1: it is nested deeper than 16 levels"),
        ("- " * 5000, "a.yaml, line 1: it is nested deeper than 16 levels"),
        (
            "task_settings: " + "[" * 16 + "]" * 16,
            "a.yaml, line 1: it is nested deeper than 16 levels",
        ),
        ("a: &a\n  b: *a\n", "a.yaml, line 2: write out what the alias *a stands for"),
        ("a: &a [1]\nb: [*a, *a]\n", "a.yaml, line 2: write out what the alias *a stands for"),
        ("# " + "x" * (1 << 18), "a.yaml holds no settings: it has more than 262144 bytes"),
        ("a: " + "1" * 5000, "a.yaml holds a value that is not what its tag says"),
        ("a: 2025-99-99", "a.yaml holds a value that is not what its tag says"),
        ("a: !!timestamp x", "a.yaml holds a value that is not what its tag says"),
    ],
    ids=lambda text: text[:24],
)
def test_a_file_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    told = refusal(RunOptions, write("a.yaml", text + "\n"))
    assert sentence in told
    assert "\n" not in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("command", "line", "sentence"),
    [
        (RunOptions, "--lerners 2", "unknown option --lerners; did you mean --learners?"),
        (RunOptions, "--run.evict_s 2", "did you mean --run.timing.evict_s?"),
        (RunOptions, "--learners", "--learners needs a value: a whole number"),
        (RunOptions, "--learners x", "learners is x; it must be a whole number"),
        (RunOptions, "--run.quorum x", "quorum is x; it must be a whole number, or auto, or null"),
        (RunOptions, "--run.quorum 1e3", "quorum is 1e3; it must be a whole number, or auto, or"),
        (RunOptions, "a.yaml ''", "unexpected argument ''; options begin with --"),
        (RunOptions, "--learners.x=1", "unknown option --learners.x; did you mean --learners?"),
        (RunOptions, "--token hush", "--token would show a secret"),
        (RunOptions, "--token=hush", "--token would show a secret"),
        (RunOptions, "--zz=hush", "unknown option --zz; --help all lists what there is"),
        (RunOptions, "no.yaml", "the config no.yaml cannot be read: No such file or directory"),
        (RunOptions, "no.yaml b", "unexpected argument 'b'"),
        (RunOptions, "--config", "--config: expected one argument"),
        (RunOptions, "--step_time_s 0", "step_time_s is 0.0; it must be above 0"),
        (LearnerOptions, "--run.seed 1", "islands run has it, python -m islands.learner has"),
        (LearnerOptions, "--tok x", "unknown option --tok"),
        (OperatorOptions, "x", "unexpected argument 'x'; the run's folder is named by --folder"),
    ],
)
def test_a_command_line_is_refused_in_a_sentence(command: type, line: str, sentence: str) -> None:
    told = refusal(command, *shlex.split(line))
    assert sentence in told
    assert "\n" not in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("command", "variable", "value", "sentence"),
    [
        (RemoveOptions, "ISLANDS_REMOVE_NAME", "a", "unknown environment variable"),
        (LearnerOptions, "ISLANDS_LEARNER_DEVICE", "0", "did you mean ISLANDS_LEARNER_DEVICES?"),
        (
            LearnerOptions,
            "ISLANDS_LEARNER_THREADS",
            "x",
            "threads is x in ISLANDS_LEARNER_THREADS; it must be a whole number, or null",
        ),
    ],
)
def test_the_environment_is_as_strict(
    command: type, variable: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt variable would else be ignored without a word, and one of a place was."""
    monkeypatch.setenv(variable, value)
    assert sentence in refusal(command)


def test_what_an_orchestrator_sets_for_a_service_is_no_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_7070_TCP"):
        monkeypatch.setenv(f"ISLANDS_SYNCER_{name}", "tcp://10.0.0.1:7070")
    assert read(SyncerOptions).name == "syncer"


# --- main -------------------------------------------------------------------------------------


def test_a_mistake_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """No usage dump and no traceback; `--debug` raises what was refused."""
    given = ["--learners", "x"]
    code = main(lambda *_: 0, RunOptions, given, program="islands run", description="")
    assert code == 2
    assert capsys.readouterr().err == ("islands run: learners is x; it must be a whole number\n")
    with pytest.raises(errors.SettingsError):
        main(lambda *_: 0, RunOptions, [*given, "--debug"], program="islands run", description="")


def full(number: int) -> errors.IslandsError:
    return errors.unusable(
        "the run folder r cannot be written", OSError(number, os.strerror(number))
    )


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (None, 0),
        (KeyboardInterrupt(), 130),
        (errors.FencedError("a newer syncer owns the journal"), errors.REPLACED),
        (errors.OutdatedError("this journal is an older copy"), 1),
        (full(errno.ENOSPC), 1),
        (full(errno.EDQUOT), 1),
        (full(errno.EIO), 1),
        (full(errno.EACCES), 2),
    ],
)
def test_the_exit_code_says_whether_a_start_may_be_tried_again(
    ended: BaseException | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def entry(*_: object) -> int:
        if ended is not None:
            raise ended
        return 0

    assert main(entry, RunOptions, [], program="islands run", description="") == code
    sentence = "" if code in (0, 130) else f"islands run: {ended}\n"
    assert capsys.readouterr().err == sentence


def test_another_preset_leaves_what_a_command_needs() -> None:
    assert read(GoodputOptions) == GoodputOptions()
    found = read(GoodputOptions, "--preset", "diloco")
    assert found.run == replace(PRESETS[Preset.DILOCO], timing=GoodputOptions().run.timing)
