"""The table `islands` in the file of a run, read and checked before anything is started."""

import os
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from islands.cli.parsing import parse
from islands.protocol.errors import SettingsError
from islands.settings.host import LearnerOptions, RunOptions

if TYPE_CHECKING:
    from islands.engines.needs import Needs


def without_learners(options: RunOptions, given: Collection[str] | None) -> RunOptions:
    """Return the options; where engines place islands, learners start here only if one says so."""
    here = given is None or "learners" in given
    return options if here or not options.islands else replace(options, learners=0)


def read_entries(options: RunOptions) -> "dict[str, Needs]":
    """Return the entries of a run's table `islands`, by name; none without a table."""
    if not options.islands:
        return {}
    from islands.engines.engine import RunMark, make_engine
    from islands.engines.hub import learner_words
    from islands.engines.needs import read_islands

    entries = read_islands(options.islands)
    for name, needs in entries.items():
        words = ["--name", f"{name}-0", *learner_words(needs.learner)]
        parse(LearnerOptions, words, program=f"islands.{name}.learner", description="")
        make_engine(needs.engine, RunMark("", ""), needs.settings)
        try:
            needs.variables(os.environ)
        except SettingsError as error:
            raise SettingsError(f"islands.{name}.{error}") from error
    return entries
