"""Every published value of a run, recomputed in float64 from the rules of protocol §3 to §6 alone.

What crossed the network gives the numbers; the tape gives the contributions of each version, and
their order. The momentum is carried here from one version to the next, over restarts as well.

`Rules` can be made to differ from the run's settings in one point: a run that contains what that
point is about is then missed, or the oracle could not tell.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Fragment, Unit
from islands.protocol.identities import SYNCER
from islands.protocol.messages.training import Contribution, FragmentUpdate
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings
from tests.numerics import oracle
from tests.oracle.run import Recording
from tests.oracle.wire import Crossing

Double = NDArray[np.float64]
Number = tuple[int, int]
Name = tuple[int, int, str]
"""A contribution on the tape: epoch and round of its ticket, and its sender."""

BLOCK = 256
SMALL_ELEMENTS = 64
MEDIAN_OVER = 8
MEDIAN_OVER_MIN = 8
LATELY = 16


@dataclass(frozen=True)
class Rules:
    """What the recomputation follows."""

    merge: str
    weighting: str
    rebases: bool
    norm_limit: float
    outer: OuterSettings
    forget_momentum: Literal["never", "always", "at a restart"] = "never"
    clip: bool = True
    weights_reversed: bool = False

    @classmethod
    def of(cls, settings: RunSettings) -> "Rules":
        return cls(
            merge=settings.merge.value,
            weighting=settings.weighting.value,
            rebases=settings.rebases,
            norm_limit=settings.norm_limit,
            outer=settings.outer,
        )

    def but(self, **changes: object) -> "Rules":
        return replace(self, **changes)  # type: ignore[arg-type]  # names are checked when called


@dataclass(frozen=True)
class Part:
    """A contribution as it crossed the network, in float64."""

    base: Number
    steps: int
    tokens: int
    delta: Double
    crossing: Crossing


@dataclass(frozen=True)
class Merge:
    """A version on the tape: what it follows, and the parts of which it is made."""

    fragment: int
    number: Number
    before: Number
    parts: tuple[Part, ...]
    scales: tuple[float, ...]


def weight(part: Part, rule: str) -> float:
    """tokens²/steps, tokens, or 1."""
    if rule == "tokens_squared_per_step":
        return part.tokens**2 / part.steps
    return float(part.tokens) if rule == "tokens" else 1.0


def units(fragment: Fragment, rule: str) -> list[Unit]:
    """Embeddings and small tensors are averaged, all others merged by direction."""
    found = []
    for piece in fragment.pieces:
        averaged = rule == "average" or "embedding" in piece.path or piece.size < SMALL_ELEMENTS
        found.append(Unit(piece.offset, piece.size, oracle.AVERAGE if averaged else oracle.RDA))
    return found


def as_double(payload: bytes, precision: str, size: int) -> Double:
    """The numbers in a payload of so many; bfloat16 is the upper half of a float32.

    Others have codes, packed by strides within blocks of 256, and then the blocks' scales.
    """
    if precision == "bfloat16":
        return _halves(payload)
    if precision == "float32":
        return np.frombuffer(payload, "<f4").astype(np.float64)
    if precision == "top_k":
        return _sparse(payload, size)
    bits = {"int8": 8, "fp4": 4, "two_bit": 2}[precision]
    lengths = [min(BLOCK, size - start) for start in range(0, size, BLOCK)]
    packed = [-(-length * bits // 8) for length in lengths]
    codes, scales = np.frombuffer(payload[: sum(packed)], np.uint8), _halves(payload[sum(packed) :])
    found = []
    for block, (length, wide) in enumerate(zip(lengths, packed, strict=True)):
        own = codes[sum(packed[:block]) :][:wide]
        parts = [own >> shift & (2**bits - 1) for shift in range(0, 8, bits)]
        code = np.concatenate(parts)[:length].astype(np.int64)
        if precision == "int8":
            found.append(np.where(code < 128, code, code - 256) * scales[block])
        elif precision == "fp4":
            level = np.where(code % 8 > 0, 2.0 ** (code % 8 - 7), 0.0)
            found.append(np.where(code < 8, level, -level) * scales[block])
        else:
            level = scales[2 * block + code % 2]
            found.append(np.where(code < 2, level, -level))
    return np.concatenate(found)


def _sparse(payload: bytes, size: int) -> Double:
    """One in 32 of each 4,096: positions of 12 bits, codes of two, and two scales for a block."""
    lengths = [min(4096, size - start) for start in range(0, size, 4096)]
    counts = [max(1, round(length / 32)) for length in lengths]
    kept = sum(counts)
    ends = -(-12 * kept // 8), -(-12 * kept // 8) + -(-2 * kept // 8)
    places = int.from_bytes(payload[: ends[0]], "little")
    codes = int.from_bytes(payload[ends[0] : ends[1]], "little")
    scales = _halves(payload[ends[1] :])
    found = np.zeros(size)
    owners = [block for block, count in enumerate(counts) for _ in range(count)]
    for index, block in enumerate(owners):
        code = codes >> 2 * index & 3
        level = scales[2 * block + code % 2]
        found[4096 * block + (places >> 12 * index & 4095)] = level if code < 2 else -level
    return found


def _halves(payload: bytes) -> Double:
    halves = np.frombuffer(payload, "<u2").astype(np.uint32) << np.uint32(16)
    return halves.view(np.float32).astype(np.float64)


class Replay:
    """A recorded run, taken apart: published values and the merges between them."""

    def __init__(self, run: Recording) -> None:
        self.run = run
        self.values: dict[int, dict[Number, Double]] = defaultdict(dict)
        for update, crossing in run.tap.updates():
            number = (update.version.epoch, update.version.number)
            value = self._sent(update, crossing.payload)
            known = self.values[update.fragment].setdefault(number, value)
            assert known.tobytes() == value.tobytes(), f"{number} has two values"
        self.parts = self._parts()
        self.arrived: dict[Name, object] = {}

    def _sent(self, update: FragmentUpdate, payload: bytes) -> Double:
        """The value that was sent: whole, or added up in float32 from the increments to it."""
        if update.since is None:
            return np.frombuffer(payload, "<f4").astype(np.float64)
        base = update.since.base
        value = self.values[update.fragment][base.epoch, base.number].astype(np.float32)
        each = len(payload) // (update.version.number - base.number)
        for start in range(0, len(payload), each):
            added = as_double(payload[start : start + each], update.since.precision, value.size)
            value = value + added.astype(np.float32)
        return value.astype(np.float64)

    def _parts(self) -> dict[Name, list[Part]]:
        """Contributions by ticket; a duplicate is the same part, another answer another one."""
        found: dict[Name, list[Part]] = defaultdict(list)
        for said, crossing in self.run.tap.contributions():
            ticket = said.ticket
            size = self.run.layout.fragments[said.fragment].size
            part = _part(said, crossing, size)
            found[ticket.epoch, ticket.round, str(ticket.name)].append(part)
        return found

    def part(self, name: Name, tokens: object) -> Part:
        """The contribution that answers a ticket with so many tokens."""
        (part, *others) = [part for part in self.parts[name] if part.tokens == tokens]
        assert all(other.delta.tobytes() == part.delta.tobytes() for other in others)
        return part

    def merges(self, norm_limit: float) -> list[Merge]:
        """Versions after the first that were sent to anybody, in the order of their making."""
        scales = self._scales(norm_limit)
        found = []
        for line in self.run.lines("merged"):
            fragment, number = _int(line["fragment"]), _number(line["version"])
            if number not in self.values[fragment]:
                continue  # the syncer died before it was durable
            names = [(number[0], _int(line["round"]), str(n)) for n in _list(line["participants"])]
            parts = [
                self.part(name, tokens)
                for name, tokens in zip(names, _list(line["tokens"]), strict=True)
            ]
            assert _list(line["steps"]) == [part.steps for part in parts]
            assert all(min(part.crossing.arrivals_s) <= _float(line["at_s"]) for part in parts)
            scaled = tuple(scales[name] for name in names)
            before = self._before(fragment, number)
            found.append(Merge(fragment, number, before, tuple(parts), scaled))
        return found

    def _before(self, fragment: int, number: Number) -> Number:
        """The published version that this one follows: no number is left out."""
        (before,) = [held for held in self.values[fragment] if held[1] == number[1] - 1]
        return before

    def _scales(self, norm_limit: float) -> dict[Name, float]:
        """By what each merged contribution is scaled down to the limit on norms.

        Norms per √step are judged together when their round closes: against the median over
        learners of each one's own newest. What exceeds the limit is scaled down to it, and enters
        those medians only if more than half of those that contributed lately exceed it. The
        learning rate is constant in these runs, and so falls out. A restarted syncer begins anew.
        """
        scales: dict[Name, float] = {}
        merged: dict[tuple[int, int], dict[str, deque[float]]] = defaultdict(
            lambda: defaultdict(lambda: deque(maxlen=MEDIAN_OVER))
        )
        lately: dict[tuple[int, int], deque[tuple[str, bool]]] = defaultdict(
            lambda: deque(maxlen=LATELY)
        )
        for names, fragment in self._judged():
            key = names[0][0], fragment
            rates = {name: self._rate(name) for name in names}
            before = merged[key]
            enough = sum(map(len, before.values())) >= MEDIAN_OVER_MIN
            usual = median(map(median, before.values())) if enough else np.inf
            over = {name: rates[name] > norm_limit * usual for name in names}
            lately[key] += [(name[2], over[name]) for name in names]
            newest = dict(lately[key])
            changed = 2 * sum(newest.values()) > len(newest)
            for name in names:
                scales[name] = min(1.0, norm_limit * usual / rates[name])
                if not over[name] or changed:
                    before[name[2]].append(scales[name] * rates[name])
        return scales

    def _judged(self) -> list[tuple[list[Name], int]]:
        """What was judged together, with its fragment: what a round closed with."""
        names = {
            str(said.ticket): (said.ticket.epoch, said.ticket.round, str(said.ticket.name))
            for said, _ in self.run.tap.contributions()
        }
        found: dict[tuple[float, int], list[Name]] = defaultdict(list)
        epoch, fragments = 0, {}
        for line in (line for line in self.run.tape if line["actor"] == SYNCER):
            match line["kind"]:
                case "opened":
                    fragments[_int(line["round"])] = _int(line["fragment"])
                case "arrived":
                    name = names[str(line["ticket"])]
                    epoch, self.arrived[name] = name[0], line["tokens"]
                case "closed":
                    round_, all_ = _int(line["round"]), _list(line["arrived"])
                    named = [(epoch, round_, str(name)) for name in all_]
                    found[_float(line["at_s"]), round_] += named
        return [(sorted(judged), fragments[round_]) for (_, round_), judged in found.items()]

    def _rate(self, name: Name) -> float:
        """The norm of the contribution that was admitted, per √step."""
        part = self.part(name, self.arrived[name])
        return float(np.linalg.norm(part.delta) / np.sqrt(part.steps))

    def errors(self, rules: Rules) -> list[float]:
        """‖published step − recomputed step‖ / ‖recomputed step‖ of every version, in order."""
        found = []
        for merge, value in self.stepped(rules):
            values = self.values[merge.fragment]
            missed = np.linalg.norm(values[merge.number] - value)
            found.append(float(missed / np.linalg.norm(value - values[merge.before])))
        return found

    def stepped(self, rules: Rules) -> Iterator[tuple[Merge, Double]]:
        """Every version, and what the outer step makes of the published one before it."""
        memories: dict[tuple[int, Number], oracle.Memory] = {}
        for merge in self.merges(rules.norm_limit):
            before = self.values[merge.fragment][merge.before]
            direction = self._direction(merge, rules)
            memory = memories.get((merge.fragment, merge.before), {})
            restarted = merge.number[0] > merge.before[0]
            if rules.forget_momentum == "always" or (
                rules.forget_momentum == "at a restart" and restarted
            ):
                memory = {}
            value, after = oracle.outer_step(rules.outer, before, memory, direction)
            memories[merge.fragment, merge.number] = after
            yield merge, value

    def _direction(self, merge: Merge, rules: Rules) -> Double:
        values = self.values[merge.fragment]
        deltas = []
        for part, scale in zip(merge.parts, merge.scales, strict=True):
            delta = part.delta * (scale if rules.clip else 1.0)
            if rules.rebases:
                delta = delta + (values[merge.before] - values[part.base])
            deltas.append(delta)
        weights = [weight(part, rules.weighting) for part in merge.parts]
        fragment = self.run.layout.fragments[merge.fragment]
        wanted = weights[::-1] if rules.weights_reversed else weights
        return oracle.merge(deltas, wanted, units(fragment, rules.merge))


def _part(said: Contribution, crossing: Crossing, size: int) -> Part:
    base = (said.base.epoch, said.base.number)
    delta = as_double(crossing.payload, said.precision, size)
    return Part(base, said.steps, said.tokens, delta, crossing)


def _number(version: object) -> Number:
    epoch, _, number = str(version).partition(".")
    return int(epoch), int(number)


def _int(field: object) -> int:
    assert isinstance(field, int)
    return field


def _float(field: object) -> float:
    assert isinstance(field, float | int)
    return float(field)


def _list(field: object) -> Sequence[object]:
    assert isinstance(field, list)
    return field
