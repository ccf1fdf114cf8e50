"""`islands layout MODULE:PARAMS FILE`: what a hub has to know of a model that others train."""

import re

from islands.cli.parsing import Common
from islands.settings.host import LayoutOptions


def run(options: LayoutOptions, _: Common) -> int:
    """Write the file, and say what is in it; return the exit code."""
    from islands.loops.layouts import parameters_named, write_layout

    assert options.file is not None, "checked with the options"
    trainable, stacked = re.compile(options.trainable), options.stacked
    leaves = write_layout(
        options.file,
        parameters_named(options.params),
        trainable=lambda path: trainable.search(path) is not None,
        stacked=lambda path: stacked is not None and re.search(stacked, path) is not None,
        records=options.records,
        shards=options.shards,
    )
    size = sum(leaf.size for leaf in leaves)
    print(f"{options.file}: {size:,} parameters in {len(leaves)} tensors; for a hub:\n")
    print(f"    python -m islands.syncer --layout {options.file}\n")
    return 0
