"""The generated pages of the reference are those of the program as it is."""

import pytest

import islands
from islands.cli.commands import PROGRAMS
from islands.cli.schema import keys_of
from islands.protocol.settings.run import RunSettings
from islands.settings.run_spec import RunSpec
from tests.reference import FOLDER, PAGES, may_change, page


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_that_of_the_program(name: str) -> None:
    """`python -m tests.reference` writes it anew."""
    assert (FOLDER / name).read_text() == page(name)


def test_there_is_no_other_page() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(PAGES)


def test_every_option_of_every_command_is_on_a_page() -> None:
    text = "".join((FOLDER / name).read_text() for name in PAGES)
    for program, command in PROGRAMS.items():
        assert f"\n## {program}\n" in text
        for name, key in keys_of(command.options).items():
            shown = (
                (f"`{name}`", f"### `{name}`")
                if key.positional
                else (f"`--{name}`", f"### `{name}`")
            )
            assert any(one in text for one in shown), f"{program} {name}"


def test_every_public_name_is_on_its_page() -> None:
    text = "".join((FOLDER / name).read_text() for name in PAGES if name[:6] == "python")
    for name in (*(f"islands.{one}" for one in islands.__all__), "islands.torch.join"):
        assert f"\n## {name}\n" in text


@pytest.mark.parametrize(
    ("key", "now"),
    [
        ("run.interval_steps", RunSpec(RunSettings(interval_steps=48))),
        ("run.fragments", RunSpec(RunSettings(fragments=2))),
        ("run.seed", RunSpec(RunSettings(seed=1))),
        ("run.learning_rate", RunSpec(RunSettings(learning_rate=1.0))),
        ("task", RunSpec(task="a:B")),
        ("task_settings", RunSpec(task_settings={"rows": 1})),
        ("preset", RunSpec(preset="diloco")),
    ],
)
def test_what_a_resumed_run_may_change_is_what_is_not_refused(key: str, now: RunSpec) -> None:
    refused = now.changed_from(RunSpec()) is not None
    assert may_change(key) != refused
