"""The pages of the documentation as tests read them: links, anchors, blocks and code spans."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.environment import ROOT
from tests.reference import slug

GENERATED = "docs/reference/"
MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Page:
    """One page by its path from the root of the repository."""

    path: str

    @property
    def file(self) -> Path:
        return ROOT / self.path

    @cached_property
    def tokens(self) -> list[Token]:
        return MARKDOWN.parse(self.file.read_text(encoding="utf-8"))

    @cached_property
    def inline(self) -> list[Token]:
        return [inner for token in self.tokens for inner in token.children or ()]

    @cached_property
    def anchors(self) -> set[str]:
        """The anchors of all headings, where a repeated one gets a number."""
        anchors: dict[str, int] = {}
        for place, token in enumerate(self.tokens):
            if token.type == "heading_open":
                words = self.tokens[place + 1].children or ()
                name = slug("".join(one.content for one in words))
                anchors[name] = anchors.get(name, -1) + 1
        return {
            f"{name}-{number}" if number else name
            for name, most in anchors.items()
            for number in range(most + 1)
        }

    @property
    def links(self) -> Iterator[str]:
        """Where links and pictures lead to."""
        for token in self.inline:
            if token.type in ("link_open", "image"):
                yield str(token.attrs.get("href") or token.attrs.get("src"))

    @property
    def blocks(self) -> Iterator[tuple[int, str, str]]:
        """Each fenced block: its line, the language that it names, and its text."""
        for token in self.tokens:
            if token.type == "fence":
                language, text = token.info.strip(), token.content
                if language == "console":  # what follows a command there is what it prints
                    lines = [line for line in text.splitlines() if line.startswith("$ ")]
                    text = "".join(f"{line[2:]}\n" for line in lines)
                yield (token.map or [0])[0] + 1, language, text

    @property
    def spans(self) -> Iterator[str]:
        """Code within sentences."""
        return (token.content for token in self.inline if token.type == "code_inline")


def all_pages() -> list[Page]:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    return [Page(path.relative_to(ROOT).as_posix()) for path in sorted(files)]


def lines_of(block: str) -> Iterator[str]:
    """Yield the commands of a block of shell, each as one line without its comment."""
    for line in block.replace("\\\n", " ").splitlines():
        told = re.sub(r"(^|\s)#.*", "", line).strip()
        if told:
            yield told
