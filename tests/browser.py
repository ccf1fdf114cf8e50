"""A real browser for tests and benchmarks: Debian's Chromium, headless, driven by Playwright.

    async with chromium() as browser:
        page, told = await open_page(browser, address, width=390, scheme="dark")

It needs `apt-get install chromium` and the extra `browser`; axe-core comes with that as well.
"""

import importlib.util
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDE, PHONE = 1280, 390
HEIGHT = 900
GRAVE = ("serious", "critical")


def missing() -> str | None:
    """Why there can be no browser here; None if there can."""
    if shutil.which("chromium") is None:
        return "there is no chromium (apt-get install chromium)"
    for module in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(module) is None:
            return f"there is no {module} (pip install 'islands[browser]')"
    return None


@asynccontextmanager
async def chromium() -> AsyncIterator["Browser"]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        try:
            yield browser
        finally:
            await browser.close()


async def open_page(
    browser: "Browser",
    address: str,
    *,
    width: int = WIDE,
    scheme: Scheme = "light",
    offline: bool = False,
) -> tuple["Page", list[str]]:
    """Open an address in a context of its own; returns the page, and what goes wrong there."""
    context = await browser.new_context(
        viewport={"width": width, "height": HEIGHT}, color_scheme=scheme
    )
    await context.set_offline(offline)
    page = await context.new_page()
    told: list[str] = []
    page.on("console", lambda each: told.append(f"{each.type}: {each.text}"))
    page.on("pageerror", lambda error: told.append(str(error)))
    await page.goto(address)
    return page, told


async def grave_violations(page: "Page") -> list[str]:
    """The serious violations of accessibility that axe-core finds in what is shown now.

    Its script comes by the driver's own door: the page's policy admits none but its own.
    """
    script = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    await page.evaluate(script)
    found = await page.evaluate("axe.run()")
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:120]}"
        for each in found["violations"]
        if each["impact"] in GRAVE
    ]


async def overflow_px(page: "Page") -> int:
    """By how many pixels the page is wider than its window."""
    found: int = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return found


async def figures(page: "Page") -> dict[str, str]:
    found: dict[str, str] = await page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#figures > div')]"
        ".map((tile) => [tile.children[0].textContent, tile.children[1].textContent]))"
    )
    return found
