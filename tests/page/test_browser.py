"""The page in a real browser, of a real run in which a learner dies and comes back."""

import json
import os
import signal
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from islands.page.messages import write_report
from tests import browser as browsers
from tests.integration.programs import control, merges, open_room, pids, write_config
from tests.page.run_folder import make_run

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

LACKS = browsers.missing()
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

VICTIM = "learner-1"
MERGES = 20
RUN = {"interval_steps": 8, "fragments": 4, "timing": {"patience": 1.0}, "budget_tokens": 10**7}
WATCH = """(name) => {
    window.seen = [];
    const look = () => {
        for (const row of document.querySelectorAll("#learners tbody tr")) {
            const state = row.children[1].textContent.split(",")[0];
            if (row.children[0].textContent === name && seen.at(-1) !== state) seen.push(state);
        }
    };
    look();
    new MutationObserver(look).observe(document.getElementById("learners"),
        { subtree: true, childList: true, characterData: true });
}"""
SAME = ("Tokens processed", "Merges", "Traffic", "moved")
"""Tiles that are no shares or speeds, which the end settles anew."""
SETTLED_MS, LIMIT_MS = 1500, 60_000


async def looked_at(browser: "Browser", address: str, *, offline: bool = False) -> dict[str, str]:
    """Look at a page on both screens and in both themes; its figures."""
    shown: dict[str, str] = {}
    for width, scheme in product((browsers.WIDE, browsers.PHONE), browsers.SCHEMES):
        page, told = await browsers.open_page(
            browser, address, width=width, scheme=scheme, offline=offline
        )
        await page.wait_for_selector("#learners tbody tr")
        await page.wait_for_timeout(SETTLED_MS)
        assert await browsers.grave_violations(page) == [], (width, scheme)
        assert await browsers.overflow_px(page) <= 0, (width, scheme)
        shown = await browsers.figures(page)
        assert told == [], (width, scheme)
        await page.context.close()
    return shown


async def shows(page: "Page", state: str) -> None:
    """Wait until the page has shown the victim in a state, after the state before it."""
    await page.wait_for_function(
        "(state) => { const at = seen.indexOf(state); if (at >= 0) seen.splice(0, at);"
        " return at >= 0; }",
        arg=state,
        timeout=LIMIT_MS,
    )


@pytest.mark.skipif(LACKS is not None, reason=LACKS or "")
@pytest.mark.long(
    "tests/page/test_server.py::test_a_viewer_is_sent_the_run_so_far_and_then_what_comes"
)
async def test_a_death_is_seen_live_and_the_report_agrees(tmp_path: Path) -> None:
    folder, report = tmp_path / "run", tmp_path / "report.html"
    config = write_config(tmp_path / "run.yaml", learners=3, run=RUN, evaluate_every_s=1.0)
    async with open_room(tmp_path) as room, browsers.chromium() as browser:
        hub = room.start("islands.cli", "run", config, "--folder", folder)
        await room.wait(lambda: merges(folder) > MERGES)
        address = (folder / "page.url").read_text().strip()
        live, told = await browsers.open_page(browser, address)
        await live.wait_for_selector("#learners tbody tr")
        await live.evaluate(WATCH, VICTIM)
        os.kill(pids(folder)[VICTIM], signal.SIGKILL)
        await shows(live, "suspect")
        syncer = pids(folder)["syncer"]
        os.kill(syncer, signal.SIGSTOP)  # else it has healed before a second look
        await live.wait_for_selector(f"#events li:has-text('{VICTIM} was evicted')")
        await shows(live, "healing")
        os.kill(syncer, signal.SIGCONT)
        await shows(live, "stepping")
        await looked_at(browser, address)
        await control(room, "stop")
        await room.ended(hub)
        await live.wait_for_function(
            "document.getElementById('headline').textContent.includes('has ended')"
        )
        shown = await browsers.figures(live)
        assert told == []
        await room.run("islands.cli", "report", folder, "--out", report)
        reported = await looked_at(browser, report.as_uri(), offline=True)
    assert {name: reported[name] for name in SAME} == {name: shown[name] for name in SAME}


@pytest.mark.skipif(LACKS is not None, reason=LACKS or "")
@pytest.mark.long("tests/page/test_report.py::test_text_of_a_run_ends_no_element_of_the_page")
@pytest.mark.parametrize("rounds", [0, 5])
async def test_bad_input_is_shown_as_text_and_runs_nothing(tmp_path: Path, rounds: int) -> None:
    folder, report = make_run(tmp_path / "run", rounds), tmp_path / "report.html"
    name = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    admitted = {"name": name, "role": "learner", "incarnation": "1.9"}
    lines = (
        '{"at_s":2.5,"actor":"supervisor","kind":"admitted",' + json.dumps(admitted)[1:],
        '{"at_s":2.6,"actor":"supervisor","kind":"admitted","name":7}',
        '{"at_s":2.7,"actor":"syncer","kind":"merged","round":{}}',
        '{"at_s":2.8,"actor":"syncer","kind":"of_yesterday","what":[]}',
        '{"at_s":2.9,"actor":"sync',
    )
    with (folder / "tape.jsonl").open("a") as tape:
        tape.write("\n".join(lines) + "\n")
    write_report([folder], report)
    async with browsers.chromium() as browser:
        page, told = await browsers.open_page(browser, report.as_uri(), offline=True)
        await page.wait_for_selector("#learners tbody tr")
        assert await page.locator("#learners tbody th", has_text=name).count() == 1
        assert await page.locator("#learners img, #learners script").count() == 0
        assert told == []
