"""The folder of a run as a hub and its processes leave it; nothing is run."""

from collections.abc import Iterable
from pathlib import Path

from islands.files.growing_files import older
from islands.files.tape_writing import HEAD
from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.model.evaluation import Judged
from islands.page.messages import Message, ended_run
from islands.page.server import LiveRun
from islands.protocol.identities import LearnerName, Phase, Role
from islands.protocol.messages.control import StepFigures
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.entry import Entry, encode_entry
from islands.protocol.tape.learner_entries import Reported
from islands.protocol.tape.member_entries import Admitted
from islands.protocol.tape.process_entries import ProcessBegan
from islands.protocol.tape.round_entries import Closed, FateTold, Journalled, Merged, Opened
from islands.run.records.figures import RunFigures
from islands.run.records.run_folder import RunFolder
from islands.settings.run_spec import RunPlan, RunSpec, write

BEGAN_S = 1_700_000_000.0
"""Wall time at which the hub began; the syncer began 10 s later, each learner 20 s later."""
LEARNERS = ("learner-0", "learner-1")
TOKENS = 64
SPEC = RunSpec(RunSettings(run="mine", fragments=2, budget_tokens=10_000))
MERGED = b'"kind":"merged"'
LAYOUT = plan([Leaf("a", (64,)), Leaf("b", (64,))], count=2, min_piece_bytes=64)
PLAN = RunPlan(LAYOUT, shards=4)


def report(steps: int, loss: float = 2.0) -> StepFigures:
    """What a learner told after so many steps, of `TOKENS` each."""
    moved = {"bytes_up": 1000 * steps, "bytes_down": 3000 * steps}
    times = {"stepping_s": 0.5 * steps, "step_time_s": 0.5, "gap_s": 0.0, "data_wait_s": 0.0}
    told = {**moved, **times, "gap_bins": (), "gap_largest_s": 0.0}
    return StepFigures("p", steps, TOKENS * steps, loss=loss, **told)  # type: ignore[arg-type]


def merged(number: int) -> Merged:
    return Merged(
        round=number,
        fragment=number % 2,
        version=f"1.{number + 1}",
        contributions=2,
        participants=[LearnerName(name) for name in LEARNERS],
        tokens=[TOKENS, TOKENS],
        steps=[1, 1],
        weights=[1.0, 1.0],
        norms=[0.1, 0.1],
        direction_norm=0.1,
        cosine=0.5,
        digest="d",
        merged_tokens=2 * TOKENS,
        clock=1.0,
        asked=2,
        learners=2,
        opened_s=100.0,
        closed_s=100.1,
    )


def rounds(count: int) -> Iterable[tuple[float, str, Entry]]:
    for number in range(count):
        at_s, names = float(number), [LearnerName(name) for name in LEARNERS]
        ticket = f"{LEARNERS[0]}/1.1@1:{number}"
        yield at_s, "syncer", Opened(number, number % 2, names, {})
        yield at_s + 0.1, "syncer", Closed(number, number % 2, names, {}, [], 1.0, 0.0)
        applied = FateTold(ticket=ticket, fragment=number % 2, fate="applied", tokens=TOKENS)  # type: ignore[arg-type]
        yield at_s + 0.2, "syncer", applied
        yield at_s + 0.3, "syncer", merged(number)
        yield at_s + 0.4, "syncer", Journalled(number)


def write_tape(path: Path, entries: Iterable[tuple[float, str, Entry]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [HEAD, *(encode_entry(*entry) for entry in entries)]
    path.write_bytes(b"\n".join(lines) + b"\n")


def began(name: str, after_s: float) -> tuple[float, str, Entry]:
    return 0.0, name, ProcessBegan(1, BEGAN_S + after_s, 500.0 + after_s)


def make_run(folder: Path, count: int = 10) -> Path:
    """Make the folder of a run of so many rounds and seconds, which was stopped then."""
    records = RunFolder(folder, SPEC.settings, fragments=len(LAYOUT.fragments))
    write(folder, SPEC, PLAN)
    records.write(*began("hub", 0.0))
    for index, name in enumerate(LEARNERS):
        admitted = Admitted(name, Role.LEARNER, f"1.{index + 1}")
        records.write(1.0 + index, "supervisor", admitted)
        phases = (Phase.COMPILING, Phase.STEPPING, Phase.STEPPING, Phase.WAITING)
        own = (
            (1.0 + at, name, Reported("1.1", phase, 0, 0, [])) for at, phase in enumerate(phases)
        )
        write_tape(folder / "processes" / name / "tape.jsonl", [began(name, 20.0), *own])
    for number in range(count):
        records.write(10.5 + number, "syncer", merged(number))
        for name in LEARNERS:
            records.on_figures(name, 10.5 + number, report(number + 1, 8.0 / (number + 1)))
    records.evaluation(10.0 + count, Judged(1.0, TOKENS), {"bits": 2.5})
    records.keep(10.0 + count)
    records.close()
    write_tape(
        folder / "processes" / "syncer" / "tape.jsonl", [began("syncer", 10.0), *rounds(count)]
    )
    return folder


def turn_over(path: Path) -> None:
    path.replace(older(path))


def lengthen(folder: Path, size_bytes: int) -> None:
    """Write a merge in the syncer's own tape again and again."""
    tape = folder / "processes" / "syncer" / "tape.jsonl"
    line = next(line for line in tape.read_bytes().splitlines(keepends=True) if MERGED in line)
    with tape.open("ab") as file:
        file.writelines([line] * (size_bytes // len(line)))


class StoppedRun(LiveRun):
    """A run that stands still, as its folder told it once; counts how often it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = 0
        self._ended = ended_run(folder, 0.0)

    @property
    def elapsed_s(self) -> float:
        return 100.0

    def about(self) -> Message:
        return self._ended.run

    def counted(self) -> tuple[RunFigures, float]:
        return self._ended.counted, self._ended.earlier_s

    def figures(self, _: float) -> Message:
        self.asked += 1
        return self._ended.figures
