"""`islands cost`: a table that fits a terminal, JSON, and one sentence for a mistake."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from tests.costs.test_prices import TEXT
from tests.page.run_folder import make_run


def test_the_command_prints_a_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "run")
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        TEXT.replace("{eu-west: 0.5}", "{other: 3600}").replace("other: 0.09", "other: 0")
    )
    assert main(["cost", str(tmp_path / "run")]) == 0
    assert "Without prices there is no money" in capsys.readouterr().out
    prices.write_text("{host_hour: {other: 3600}, learners: {'*': {region: x}}}")
    assert main(["cost", str(tmp_path / "run"), "--prices", str(prices)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert main(["cost", str(tmp_path / "run"), "--prices", str(prices), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    # of twenty seconds, one was a member from the first on, and the other from the second
    assert told["whole"]["cost"] == pytest.approx(19.0 + 18.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "folder is not set; name the folder of a run"),
        (("none",), "there is no folder none"),
        (("run", "--prices", "none.yaml"), "none.yaml cannot be read: No such file"),
        (
            ("run", "--prices", "wrong.yaml"),
            "wrong.yaml: Object contains unknown field `prices`",
        ),
        (("run", "--prices", "few.yaml"), "few.yaml: nobody tells where learner-0 ran"),
        (
            ("run", "--prices", "some.yaml"),
            "some.yaml: there is no price of an hour of a host in x",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "wrong.yaml").write_text("prices: {}\n")
    (tmp_path / "few.yaml").write_text("host_hour: {other: 1}\n")
    (tmp_path / "some.yaml").write_text("learners: {'*': {region: x}}\n")
    assert sentence in refused("cost", *arguments)
