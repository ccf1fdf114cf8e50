"""The documentation site, which `make docs` builds: this folder, and the pages beside it.

Its root is that of the repository, so that links between pages are those of the files.
"""

project = "Islands"
html_title = "Islands"
root_doc = "docs/index"
include_patterns = ["*.md", "deploy/README.md", "docs/**"]
exclude_patterns = [".*", "build", "examples", "islands", "messaging", "runs", "tests"]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
highlight_language = "none"  # of blocks that name none

html_theme = "furo"
html_extra_path = ["site"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sourcelink = False
html_use_index = False
