"""An experiment: runs on a virtual clock, which are played side by side and compared in a table.

Each module of an experiment ends with an `EXPERIMENT`, which says what is its own: its runs, how
one of them is played, and the table, figures and pictures of their results. `islands lab simulate`
does the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Options = TypeVar("Options")
Key = TypeVar("Key")
Job = TypeVar("Job")
Result = TypeVar("Result")

Pictures = Mapping[str, Callable[[], bytes]]


@dataclass(frozen=True, slots=True)
class Experiment(Generic[Options, Key, Job, Result]):
    """The functions of one experiment.

    `jobs` returns the runs by key, in the order in which they begin, and `play` plays one, as a
    function of a module, which other processes can import. The table of the results is Markdown,
    the figures are written as JSON, pictures are PNG files by name, and `kept` says whether the
    results keep every promise.
    """

    jobs: Callable[[Options], Mapping[Key, Job]]
    play: Callable[[Job], Result]
    table: Callable[[Options, Mapping[Key, Result]], str]
    figures: Callable[[Options, Mapping[Key, Result]], object]
    pictures: Callable[[Options, Mapping[Key, Result]], Pictures] = lambda _, __: {}
    kept: Callable[[Mapping[Key, Result]], bool] = lambda _: True
