"""Redo the merges of a run in float64, from its initial values and recorded contributions alone.

The record of a run (`islands.run.records.merge_record`) is read frame by frame, and each merge is
redone twice. Once its fragment is carried from version to version in float64, with its momentum,
and what the run has published is only compared with it: so errors of float32 add up over the
versions, as they did in the run. And once the step is taken from the value that was published
before it, and is compared by its own length: against a value that is 10,000 times as long nobody
would notice a step that is too long by a third. Clipping is taken as recorded, and not judged
again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isnan
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.files.growing_files import older
from islands.lab.replay.arithmetic import SMALLEST, Doubles, State, merge, step, weight
from islands.layout.leaves import VALUE_BYTES
from islands.protocol.errors import UserError, unusable
from islands.protocol.identities import Version
from islands.protocol.settings.choices import Anchor, MergeRule
from islands.protocol.settings.outer import OuterSettings
from islands.run.records.merge_record import (
    FOLDER,
    LENGTH,
    MAGIC,
    SUFFIX,
    Began,
    Header,
    Held,
    Merged,
)
from messaging.codec.tensors import as_buffer, digest

REPLAYED = "Sgd"
"""Class of the outer optimizer that is replayed; others are the user's own."""
TAPE_FILE = "tape.jsonl"
HEADER_BYTES_MAX = 2**28
ROUNDED_TERMS = 2.0**-20
"""The share of its terms that float32 may miss of their sum: some units of 2⁻²⁴ for each."""

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its header, and its arrays in the header's order."""

    header: Header
    arrays: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class Redone:
    """One merge that was redone.

    Args:
        fragment: its fragment.
        version: the version that it made.
        contributions: number of contributions.
        error: ‖redone − published‖ / ‖published‖, Euclidean.
        step_error: that of the step alone, from the published value before it, beyond rounding;
            of outer steps and averaged states the greater one.
        step_rounding: the share of the step that the rounding of its end to float32 may hide.
        published: whether the recorded value has the digest that was recorded, and that of the tape
            where that still has it.
    """

    fragment: int
    version: Version
    contributions: int
    error: float
    step_error: float
    step_rounding: float
    published: bool


@dataclass(slots=True)
class Findings:
    """The findings of a replay.

    Args:
        merges: the merges in the order in which they were made.
        gaps: sentences on merges that could not be redone, since others before them are missing.
    """

    merges: list[Redone] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    @property
    def error(self) -> float:
        """The greatest relative error of a value; NaN counts as infinite."""
        return greatest(redone.error for redone in self.merges)

    @property
    def step_error(self) -> float:
        """The greatest relative error of a step; NaN counts as infinite."""
        return greatest(redone.step_error for redone in self.merges)

    @property
    def step_rounding(self) -> float:
        """The greatest share of a step that rounding may hide."""
        return greatest(redone.step_rounding for redone in self.merges)


def greatest(errors: Iterable[float]) -> float:
    """Return the greatest of some errors, 0 of none; NaN counts as infinite."""
    return max((inf if isnan(error) else error for error in errors), default=0.0)


@dataclass(slots=True)
class _Fragment:
    """The newest versions of one fragment: as they are carried, and as they were published.

    Both have the momentum of their own directions. These differ where contributions are anchored at
    the current value, since what was published since their bases is part of them.
    """

    carried: dict[Version, State]
    published: dict[Version, State]


class Replay:
    """The fragments of a run as they are redone.

    Args:
        folder: the run's folder.
        rule: merge rule in place of the run's own; None for the run's own.
    """

    def __init__(self, folder: Path, rule: MergeRule | None = None) -> None:
        """Read the digests on the tape; no record is read yet.

        Raises:
            UserError: the run has recorded nothing, or the rule cannot be redone.
        """
        if rule is not None:
            _refuse_robust("merge is", rule)
        self._files = record_files(folder)
        self._rule = rule
        self._on_tape = digests_on_tape(folder)
        self._fragments: dict[int, _Fragment] = {}
        self._began: Began

    def run(self, merges: int | None = None) -> Findings:
        """Redo the first `merges` merges, or all.

        Raises:
            UserError: a file cannot be read, or an optimizer of the user's own made the values.
        """
        findings = Findings()
        for frame in self._frames():
            match frame.header:
                case Began():
                    self._begin(frame.header)
                case Held():
                    self._hold(frame.header, frame, findings)
                case Merged():
                    if merges is not None and len(findings.merges) >= merges:
                        break
                    self._redo(frame.header, frame, findings)
        return findings

    def _frames(self) -> Iterator[Frame]:
        for file in self._files:
            yield from frames(file)

    def _begin(self, began: Began) -> None:
        if began.optimizer != REPLAYED:
            raise UserError(
                f"the run's outer optimizer is {began.optimizer}; only SGD with momentum, which "
                "run.outer sets, can be replayed"
            )
        settings = began.settings
        outer = settings.outer
        if outer != OuterSettings(outer.learning_rate, outer.momentum, outer.nesterov):
            raise UserError(
                "the run's outer momentum corrects contributions; only contributions as they are "
                "can be replayed"
            )
        _refuse_robust("the run merges by", settings.merge)
        self._began = began

    def _hold(self, held: Held, frame: Frame, findings: Findings) -> None:
        """Begin a fragment; one that was redone until this version goes on as it was redone."""
        arrays = {
            name: array.astype(np.float64)
            for name, array in zip(held.arrays, frame.arrays, strict=True)
        }
        fragment = self._fragments.get(held.fragment)
        if fragment is not None:
            if held.version in fragment.carried:
                return
            findings.gaps.append(
                f"fragment {held.fragment}: merges between {max(fragment.carried)} and "
                f"{held.version} are not recorded; it goes on from the value that was recovered"
            )
        value = arrays["value"]
        state = State(value, arrays.get("momentum", np.zeros_like(value)))
        self._fragments[held.fragment] = _Fragment({held.version: state}, {held.version: state})

    def _redo(self, merged: Merged, frame: Frame, findings: Findings) -> None:
        *sent, published = frame.arrays
        fragment = self._fragments.get(merged.fragment, _Fragment({}, {}))
        wanted = (merged.before, *self._bases(merged))
        lacking = [version for version in wanted if version not in fragment.carried]
        if lacking:
            findings.gaps.append(
                f"fragment {merged.fragment}: version {merged.version} cannot be redone, since "
                f"the merge that made {lacking[0]} is not recorded"
            )
            return
        carried, _ = self._stepped(merged, sent, fragment.carried)
        stepped, terms = self._stepped(merged, sent, fragment.published)
        judged = [
            of_the_step(
                fragment.published[merged.before].value[same],
                stepped.value[same],
                published[same],
                terms[same],
            )
            for same in self._alike(merged.fragment)
        ]
        self._keep(fragment.carried, merged.version, carried)
        shown = State(published.astype(np.float64), stepped.momentum)
        self._keep(fragment.published, merged.version, shown)
        findings.merges.append(
            Redone(
                fragment=merged.fragment,
                version=merged.version,
                contributions=len(sent),
                error=relative_error(carried.value, published),
                step_error=greatest(error for error, _ in judged),
                step_rounding=greatest(rounding for _, rounding in judged),
                published=self._is_published(merged, published),
            )
        )

    @property
    def _rebases(self) -> bool:
        return self._began.settings.anchor is Anchor.CURRENT

    def _bases(self, merged: Merged) -> list[Version]:
        return [part.base for part in merged.parts] if self._rebases else []

    def _stepped(
        self, merged: Merged, sent: Sequence[Floats], states: dict[Version, State]
    ) -> tuple[State, Doubles]:
        """Take the step of a merge; return its end, and the size of the terms that it adds up."""
        settings, units = self._began.settings, self._began.units[merged.fragment]
        before = states[merged.before]
        contributions = [
            part.scale * values.astype(np.float64) + self._moved(states, part.base, merged.before)
            for part, values in zip(merged.parts, sent, strict=True)
        ]
        weights = [weight(part.tokens, part.steps, settings.weighting) for part in merged.parts]
        direction = merge(contributions, weights, units, self._rule or settings.merge)
        terms = np.abs(before.momentum)
        for values in contributions:
            terms = np.maximum(terms, np.abs(values))
        rates = np.where(self._alike(merged.fragment)[0], settings.outer.learning_rate, 1.0)
        return step(before, direction, units, settings.outer), rates * terms

    def _alike(self, fragment: int) -> tuple[Mask, Mask]:
        """Return where a fragment takes outer steps, and where it holds averages of states.

        The rate shortens only the former, which the others would hide.
        """
        units = self._began.units[fragment]
        stepped = np.zeros(sum(unit.size for unit in units), np.bool_)
        for unit in units:
            stepped[unit.offset : unit.offset + unit.size] = unit.stepped
        return stepped, ~stepped

    def _moved(
        self, states: dict[Version, State], base: Version, before: Version
    ) -> Doubles | float:
        """Return the change since a contribution's base, where the anchor is the current value."""
        if not self._rebases or base == before:
            return 0.0
        return np.asarray(states[before].value - states[base].value)

    def _keep(self, states: dict[Version, State], version: Version, state: State) -> None:
        states[version] = state
        for old in sorted(states)[: -(self._began.settings.staleness_max + 2)]:
            del states[old]

    def _is_published(self, merged: Merged, published: NDArray[np.float32]) -> bool:
        own = digest(as_buffer(published))
        on_tape = self._on_tape.get((merged.fragment, str(merged.version)), own)
        return own == merged.digest == on_tape


def _refuse_robust(where: str, rule: MergeRule) -> None:
    if rule.robust:
        raise UserError(
            f"{where} {rule}; only {MergeRule.RADIAL_DIRECTIONAL} and {MergeRule.AVERAGE} can be "
            "replayed"
        )


def relative_error(redone: Doubles, published: NDArray[np.float32]) -> float:
    """Return ‖redone − published‖ / ‖published‖; of a published zero, ‖redone‖."""
    wide = published.astype(np.float64)
    missed, length = np.linalg.norm(redone - wide), np.linalg.norm(wide)
    return float(missed / length) if length else float(missed)


def of_the_step(
    before: Doubles, redone: Doubles, published: Floats, terms: Doubles
) -> tuple[float, float]:
    """Return a step's relative error beyond rounding, and the share that rounding may hide.

    ::

        max(0, ‖redone − published‖ − r) / ‖redone − before‖,   r / ‖redone − before‖
        r = ‖half a unit in the last place of the published numbers‖ + 2⁻²⁰ ‖terms‖

    The second part matters where long terms cancel to a short step. Numbers below the smallest
    normal one count as that, since some processors take them for zero. A step of length 0 has an
    error of 0 or infinity, and nothing to hide.
    """
    ends = np.maximum(np.abs(published), np.float32(SMALLEST))
    units = np.spacing(ends).astype(np.float64) / 2 + SMALLEST
    rounding = float(np.linalg.norm(units) + ROUNDED_TERMS * np.linalg.norm(terms))
    missed = float(np.linalg.norm(redone - published.astype(np.float64))) - rounding
    length = float(np.linalg.norm(redone - before))
    if length == 0.0:
        return (inf if missed > 0.0 else 0.0), 0.0
    return max(missed, 0.0) / length, rounding / length  # of NaN the maximum is NaN


class _MergeOnTape(msgspec.Struct):
    kind: str
    fragment: int = -1
    version: object = None
    digest: str = ""


def digests_on_tape(folder: Path) -> dict[tuple[int, str], str]:
    """Return the digests of merges on the run's tape, by fragment and version."""
    digests: dict[tuple[int, str], str] = {}
    for path in (older(folder / TAPE_FILE), folder / TAPE_FILE):
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        for line in lines:
            if b'"merged"' not in line:
                continue
            try:
                entry = msgspec.json.decode(line, type=_MergeOnTape)
            except msgspec.MsgspecError:
                continue  # of a run that goes on, the last line may be cut off
            if entry.kind == "merged":
                digests[entry.fragment, str(entry.version)] = entry.digest
    return digests


# --- the record -------------------------------------------------------------------------------


def record_files(folder: Path) -> list[Path]:
    """Return the files of a run's record, in the order of the syncer's starts.

    Raises:
        UserError: the run has recorded nothing.
    """
    files = sorted((folder / FOLDER).glob(f"*{SUFFIX}"))
    if not files:
        raise UserError(
            f"{folder} holds no recorded contributions; a run records them if it is started with "
            "--run.record_contributions"
        )
    return files


def frames(path: Path) -> Iterator[Frame]:
    """Read a file as far as it is now; a last frame that is cut off is left out.

    The run may go on, and a reader of all that comes might never end.

    Raises:
        UserError: the file cannot be read, or is no record of this version.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise UserError(
                    f"{path} is no record of contributions that this version of islands can read"
                )
            end = path.stat().st_size
            while file.tell() < end and (frame := _next(file, path)) is not None:
                yield frame
    except OSError as error:
        raise unusable(f"{path} cannot be read", error) from error


def _next(file: IO[bytes], path: Path) -> Frame | None:
    length = file.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(length)
    text = file.read(min(size, HEADER_BYTES_MAX))
    if len(text) < min(size, HEADER_BYTES_MAX):
        return None
    try:
        header: Header = msgspec.json.decode(text, type=Header)
    except (msgspec.MsgspecError, UserError) as error:
        raise UserError(f"{path} is damaged at byte {file.tell() - len(text)}: {error}") from error
    arrays: list[Floats] = []
    for elements in () if isinstance(header, Began) else header.sizes:
        data = file.read(VALUE_BYTES * elements)
        if len(data) < VALUE_BYTES * elements:
            return None
        arrays.append(np.frombuffer(data, "<f4"))
    return Frame(header, tuple(arrays))
