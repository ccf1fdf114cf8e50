"""The files of the page: served apart, or put into one that opens without a server.

In one file, modules cannot import each other: each becomes a function that returns what it exports.
That takes two rules, which a test holds: an import is one statement of names from a neighbour
(`import { a } from "./b.mjs";`), and an export stands before a function, class or constant.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
STYLES = ("vendor/uPlot.min.css", "page.css")
EARLY, SCRIPT = "early.js", "vendor/uPlot.iife.min.js"
MODULES = (
    *("format.mjs", "reducer.mjs", "questions.mjs", "theme.mjs", "elements.mjs"),
    *("charts.mjs", "exchanges.mjs", "lanes.mjs", "learners.mjs", "view.mjs", "main.mjs"),
)
"""All modules, each after those that it imports."""

KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
}
SERVED = (PAGE, *STYLES, EARLY, SCRIPT, *MODULES)

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z]+)\.mjs";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?function\*?|class|const) (\w+)", re.MULTILINE)
LINKS = re.compile(r"<!-- apart -->.*<!-- /apart -->\n?", re.DOTALL)

DATA = "application/x-ndjson"
"""The type of a script element that holds the entries of one run."""


@cache
def content_of(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def single_page(runs: Sequence[Sequence[bytes]], title: str) -> str:
    """Return the page as one file, with the entries of runs inside.

    Its policy allows no script but those in it, and no network.
    """
    scripts = [*map(_text, (EARLY, SCRIPT)), bundle({name: _text(name) for name in MODULES})]
    styles = [_text(name) for name in STYLES]
    policy = (
        f"default-src 'none'; img-src data:; script-src {' '.join(map(_hashed, scripts))}; "
        f"style-src {' '.join(map(_hashed, styles))}; base-uri 'none'; form-action 'none'"
    )
    head = [f'<meta http-equiv="Content-Security-Policy" content="{policy}">']
    head += [f"<style>{style}</style>" for style in styles] + [f"<script>{scripts[0]}</script>"]
    body = [f'<script type="{DATA}">{_inert(lines)}</script>' for lines in runs]
    body += [f"<script>{script}</script>" for script in scripts[1:]]
    page = LINKS.sub(lambda _: "\n".join(head), _text(PAGE))
    page = page.replace("<title>Islands</title>", f"<title>{_plain(title)}</title>")
    return page.replace("</body>", "\n".join([*body, "</body>"]))


def bundle(modules: dict[str, str]) -> str:
    """Return one classic script that does what modules do, each given after those it imports."""
    parts = ['"use strict";']
    for name, text in modules.items():
        exported = ", ".join(found[1] for found in EXPORT.findall(text))
        body = EXPORT.sub(r"\1 \2", IMPORT.sub(_reading, text))
        made = f"(() => {{\n{body}\nreturn {{ {exported} }};\n}})();"
        parts.append(f"const module_{name.removesuffix('.mjs')} = {made}")
    return "\n".join(parts)


def _reading(found: re.Match[str]) -> str:
    return f"const {{{found[1].replace(' as ', ': ')}}} = module_{found[2]};\n"


def _text(name: str) -> str:
    return content_of(name).decode()


def _hashed(text: str) -> str:
    """Return the source by which a policy allows an element with this text."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _inert(lines: Sequence[bytes]) -> str:
    """Return lines of JSON that end no element: `<` stands in texts alone, where it is escaped."""
    return b"\n".join(lines).decode(errors="replace").replace("<", "\\u003c")


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
