"""The site of docs/ has every page, is built without a warning, and needs no network."""

import json
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from posixpath import normpath

import pytest

from tests.environment import ROOT
from tests.pages import Page, all_pages

INDEX = Page("docs/index.md")
ENTRY = re.compile(r"^(?:.*<(.+)>|([^:\s].*))$", re.MULTILINE)
ELSEWHERE = re.compile(
    r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=[\"'](?:https?:)?//", re.ASCII
)


def contents() -> list[str]:
    """The entries of the table of contents, as patterns of pages without their suffix."""
    tables = [text for _, language, text in INDEX.blocks if language == "{toctree}"]
    found = [one for table in tables for one in ENTRY.findall(table)]
    return [normpath(f"docs/{named or plain}") for named, plain in found]


def test_every_page_is_in_the_table_of_contents() -> None:
    """Else the site's build warns, and fails."""
    pages = [page.path.removesuffix(".md") for page in all_pages() if page != INDEX]
    entries = contents()
    missing = [page for page in pages if not any(fnmatchcase(page, one) for one in entries)]
    assert missing == []
    plain = [one for one in entries if "*" not in one]
    assert [one for one in plain if one not in pages] == []


@pytest.mark.long("test_every_page_is_in_the_table_of_contents")
@pytest.mark.skipif(find_spec("furo") is None, reason="the extra `docs` is not installed")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    site = tmp_path / "site"
    words = ["--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", "docs", ".", str(site)]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert (built.returncode, built.stderr) == (0, "")
    pages = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    assert {f"{page.path.removesuffix('.md')}.html" for page in all_pages()} <= set(pages)
    assert [name for name, path in pages.items() if ELSEWHERE.search(path.read_text())] == []
    text = (site / "searchindex.js").read_text()
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    for word in ("quorum", "checkpoint", "drain"):
        assert word in index["terms"] or word in index["titleterms"]
