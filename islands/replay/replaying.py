"""Redo the merges of a run in float64, from its initial values and recorded contributions alone.

Each fragment is carried from version to version in float64, with its momentum; what the run has
published is only compared with it. So errors of float32 add up over the versions, as they did in
the run. Clipping is taken as recorded, and not judged again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.errors import UserError
from islands.files.rotation import older
from islands.identities import Version
from islands.replay.arithmetic import Doubles, State, merge, step, weight
from islands.replay.reading import Frame, frames, record_files
from islands.replay.record import Began, Held, Merged
from islands.settings.run import Anchor, MergeRule, OuterSettings
from messaging.codec.tensors import as_buffer, digest

REPLAYED = "Sgd"
"""Class of the outer optimizer that is replayed; others are the user's own."""
TAPE_FILE = "tape.jsonl"


@dataclass(frozen=True, slots=True)
class Redone:
    """One merge that was redone.

    Args:
        fragment: its fragment.
        version: the version that it made.
        contributions: number of contributions.
        error: ‖redone − published‖ / ‖published‖, Euclidean.
        published: whether the recorded value has the digest that was recorded, and told on the
            tape where that still has it.
    """

    fragment: int
    version: Version
    contributions: int
    error: float
    published: bool


@dataclass(slots=True)
class Findings:
    """What a replay found.

    Args:
        merges: the merges in the order in which they were made.
        gaps: sentences on merges that could not be redone, since others before them are missing.
    """

    merges: list[Redone] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    @property
    def error(self) -> float:
        """The greatest relative error; NaN counts as infinite."""
        errors = [redone.error for redone in self.merges]
        return max((e if e == e else np.inf for e in errors), default=0.0)  # noqa: PLR0124  NaN


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
        self._told = told_digests(folder)
        self._states: dict[int, dict[Version, State]] = {}
        self._began: Began

    def run(self, merges: int | None = None) -> Findings:
        """Redo the first `merges` merges, or all.

        Raises:
            UserError: a file cannot be read, or an optimizer of the user's own made the values.
        """
        found = Findings()
        for frame in self._frames():
            match frame.header:
                case Began():
                    self._begin(frame.header)
                case Held():
                    self._hold(frame.header, frame, found)
                case Merged():
                    if merges is not None and len(found.merges) >= merges:
                        break
                    self._redo(frame.header, frame, found)
        return found

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
                "the run's outer momentum or rate changes in its course, or corrects "
                "contributions; only steady ones, of contributions as they are, can be replayed"
            )
        _refuse_robust("the run merges by", settings.merge)
        self._began = began

    def _hold(self, held: Held, frame: Frame, found: Findings) -> None:
        """Begin a fragment; one that was redone until this version goes on as it was redone."""
        arrays = {
            name: array.astype(np.float64)
            for name, array in zip(held.arrays, frame.arrays, strict=True)
        }
        known = self._states.get(held.fragment, {})
        if held.version in known:
            return
        if known:
            found.gaps.append(
                f"fragment {held.fragment}: merges between {max(known)} and {held.version} are not "
                "recorded; it goes on from the value that was recovered"
            )
        value = arrays["value"]
        momentum = arrays.get("momentum", np.zeros_like(value))
        self._states[held.fragment] = {held.version: State(value, momentum)}

    def _redo(self, merged: Merged, frame: Frame, found: Findings) -> None:
        *sent, published = frame.arrays
        states = self._states.get(merged.fragment, {})
        lacking = [v for v in (merged.before, *self._bases(merged)) if v not in states]
        if lacking:
            found.gaps.append(
                f"fragment {merged.fragment}: version {merged.version} cannot be redone, since "
                f"the merge that made {lacking[0]} is not recorded"
            )
            return
        before = states[merged.before]
        units, settings = self._began.units[merged.fragment], self._began.settings
        contributions = [
            part.scale * values.astype(np.float64) + self._moved(states, part.base, merged.before)
            for part, values in zip(merged.parts, sent, strict=True)
        ]
        weights = [weight(part.tokens, part.steps, settings.weighting) for part in merged.parts]
        direction = merge(contributions, weights, units, self._rule or settings.merge)
        after = step(before, direction, units, settings.outer)
        self._keep(states, merged.version, after)
        found.merges.append(
            Redone(
                fragment=merged.fragment,
                version=merged.version,
                contributions=len(sent),
                error=relative_error(after.value, published),
                published=self._is_published(merged, published),
            )
        )

    def _bases(self, merged: Merged) -> list[Version]:
        if self._began.settings.anchor is not Anchor.CURRENT:
            return []
        return [part.base for part in merged.parts]

    def _moved(
        self, states: dict[Version, State], base: Version, before: Version
    ) -> Doubles | float:
        """What was published since a contribution's base, where the anchor is the current value."""
        if self._began.settings.anchor is not Anchor.CURRENT or base == before:
            return 0.0
        return np.asarray(states[before].value - states[base].value)

    def _keep(self, states: dict[Version, State], version: Version, state: State) -> None:
        states[version] = state
        for old in sorted(states)[: -(self._began.settings.staleness_max + 2)]:
            del states[old]

    def _is_published(self, merged: Merged, published: NDArray[np.float32]) -> bool:
        found = digest(as_buffer(published))
        told = self._told.get((merged.fragment, str(merged.version)), found)
        return found == merged.digest == told


def _refuse_robust(told: str, rule: MergeRule) -> None:
    if rule.robust:
        raise UserError(
            f"{told} {rule}; only {MergeRule.RADIAL_DIRECTIONAL} and {MergeRule.AVERAGE} can be "
            "replayed"
        )


def relative_error(redone: Doubles, published: NDArray[np.float32]) -> float:
    """Return ‖redone − published‖ / ‖published‖; of a published zero, ‖redone‖."""
    wide = published.astype(np.float64)
    missed, length = np.linalg.norm(redone - wide), np.linalg.norm(wide)
    return float(missed / length) if length else float(missed)


class _Told(msgspec.Struct):
    kind: str
    fragment: int = -1
    version: object = None
    digest: str = ""


def told_digests(folder: Path) -> dict[tuple[int, str], str]:
    """Return the digests that the run's tape tells of merges, by fragment and version."""
    found: dict[tuple[int, str], str] = {}
    for path in (older(folder / TAPE_FILE), folder / TAPE_FILE):
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        for line in lines:
            if b'"merged"' not in line:
                continue
            try:
                told = msgspec.json.decode(line, type=_Told)
            except msgspec.MsgspecError:
                continue  # of a run that goes on, the last line may be cut off
            if told.kind == "merged":
                found[told.fragment, str(told.version)] = told.digest
    return found
