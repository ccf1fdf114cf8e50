"""The vocabulary of faults: what happens to whom, when, for how long, and how badly.

A `Fault` says what happens, and an `Injection` is one occurrence of it. A scenario's file names
faults, of which `schedule.py` makes injections; `islands.lab.world.scenario` draws others.
`SIMULATED` in `islands.lab.world.fault_effects` carries them out on a virtual clock, and `REAL` in
`injections.py` on processes and links.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Annotated

from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.setting import Setting

if TYPE_CHECKING:  # options are made of this vocabulary, and --help answers without asyncio
    from messaging.simulation.network import Route


class FaultKind(StrEnum):
    """All faults: those that a scenario may name, then those that only seeds draw."""

    KILL = "kill"
    TERMINATE = "terminate"
    FREEZE = "freeze"
    STRAGGLE = "straggle"
    HANG = "hang"
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    CUT = "cut"
    FLAP = "flap"
    RESET = "reset"

    ISOLATE = "isolate"
    PATH = "path"
    WEATHER = "weather"
    DISK = "disk"
    FLIP_ON_DISK = "flip_on_disk"
    POISON = "poison"
    INFLATE = "inflate"
    SECOND_SYNCER = "second_syncer"
    TAKE_OVER = "take_over"
    PAUSE = "pause"
    DRAIN = "drain"

    @property
    def of_links(self) -> bool:
        """Whether it happens to the links of learners, and to no process."""
        return self in LINKS

    @property
    def ends_process(self) -> bool:
        return self in ENDING


IN_SCENARIOS = tuple(FaultKind)[: tuple(FaultKind).index(FaultKind.ISOLATE)]
"""Kinds that a scenario may name."""
ENDING = (FaultKind.KILL, FaultKind.TERMINATE, FaultKind.HANG)
LINKS = (FaultKind.LATENCY, FaultKind.BANDWIDTH, FaultKind.CUT, FaultKind.FLAP, FaultKind.RESET)
AT_ONCE = (FaultKind.KILL, *LINKS)
"""Kinds that can happen to all at once."""

LEARNER, ANYBODY, EVERYBODY = "learner", "random", "all"
"""Words for a victim that is drawn: a learner, a learner or the syncer; and for all processes."""


class Direction(StrEnum):
    """A direction of a link: from the victim, to it, or both."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"

    @property
    def ways(self) -> tuple["Direction", ...]:
        return (Direction.UP, Direction.DOWN) if self is Direction.BOTH else (self,)


class Peer(StrEnum):
    """A link of a learner: the one to the syncer, the one to the supervisor, or both."""

    SYNCER = SYNCER
    SUPERVISOR = SUPERVISOR
    BOTH = "both"


POSITIVE, NOT_NEGATIVE = Setting(above=0, below=inf), Setting(least=0, below=inf)


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of a scenario, which may occur several times; docs/chaos.md describes its keys."""

    kind: FaultKind
    who: str = LEARNER
    at_s: Annotated[tuple[float, ...], NOT_NEGATIVE] = ()
    every_s: Annotated[float | None, POSITIVE] = None
    times: Annotated[int, Setting(least=1, most=1000)] = 1
    for_s: Annotated[float, POSITIVE] = 1.0
    factor: Annotated[float, Setting(above=1, below=inf)] = 10.0
    way: Direction = Direction.BOTH
    link: Peer = Peer.BOTH
    latency_s: Annotated[float, NOT_NEGATIVE] = 0.2
    jitter_s: Annotated[float, NOT_NEGATIVE] = 0.1
    bytes_s: Annotated[float, POSITIVE] = 250e3
    mean_bytes: Annotated[float, POSITIVE] = 1e5
    turn_s: Annotated[float, Setting(least=0.01, below=inf)] = 1.0

    @property
    def silences(self) -> bool:
        """Whether the supervisor hears nothing of a victim while it lasts."""
        cut = self.kind is FaultKind.CUT and self.link is not Peer.SYNCER
        return cut or self.kind is FaultKind.FREEZE

    def silent_most_s(self, lasted_s: float) -> float:
        """Return for how long at most the supervisor hears nothing of a victim.

        After a cut TCP waits up to as long again before it retransmits.
        """
        if not self.silences:
            return 0.0
        return lasted_s if self.kind is FaultKind.FREEZE else 2 * lasted_s

    def evicted_after_s(self, evict_s: float) -> float:
        """Return how long after the beginning a victim is evicted that stays silent.

        One that hears nothing and is heard itself closes its link before it is silent.
        """
        return 2 * evict_s if self.kind is FaultKind.CUT and self.way is Direction.DOWN else evict_s

    @property
    def disturbs(self) -> bool:
        """Whether a victim may be evicted for it, however long it lasts.

        Its session ends for what comes broken or too slowly, and each next one may as well.
        """
        breaking = (FaultKind.FLAP, FaultKind.RESET, FaultKind.BANDWIDTH)
        return self.kind in breaking and self.link is not Peer.SYNCER


@dataclass(frozen=True, slots=True)
class Injection:
    """One occurrence of a fault; times are seconds after the control, or of the virtual clock.

    Until `rest_s` after its end all have time to recover. On the virtual clock, `peer` and `route`
    replace the fault's own link and figures, each victim of a kill is started again after its
    `down_s`, a `silent` kill leaves links open as a power loss does, one `in_write` waits a short
    time for a sync of the syncer's disk, and `disk` is the tape's word for a bad disk.
    """

    fault: Fault
    victims: tuple[str, ...]
    at_s: float
    name: str = ""
    rest_s: float = 0.0
    peer: str = ""
    route: "Route | None" = None
    down_s: tuple[float, ...] = ()
    silent: bool = False
    in_write: bool = False
    disk: str = ""

    @property
    def kind(self) -> FaultKind:
        return self.fault.kind

    @property
    def peers(self) -> tuple[str, ...]:
        """The other ends of the victims' paths that suffer."""
        if self.peer:
            return (self.peer,)
        link = self.fault.link
        return (SUPERVISOR, SYNCER) if link is Peer.BOTH else (link.value,)

    @property
    def ends_s(self) -> float:
        """When it ends; for a process that ended, when it may come back."""
        away = self.kind in (FaultKind.TERMINATE, FaultKind.HANG) or SUPERVISOR in self.victims
        at_once = self.kind.ends_process and not away
        return self.at_s if at_once else self.at_s + self.fault.for_s

    @property
    def until_s(self) -> float:
        """By when all must have recovered; what is measured belongs to the time until then."""
        return self.ends_s + self.rest_s

    @property
    def hits_hub(self) -> bool:
        return SYNCER in self.victims or SUPERVISOR in self.victims

    def __str__(self) -> str:
        whom = f" of {', '.join(self.victims)}" if self.victims else ""
        return f"{self.at_s:.3f} s: {self.kind}{whom}{f' to {self.peer}' if self.peer else ''}"

    def overlaps(self, other: "Injection") -> bool:
        """Whether what is measured of one may come from the other."""
        return self.at_s < other.until_s and other.at_s < self.until_s

    def undoes(self, other: "Injection") -> bool:
        """Whether it happens to the same thing as another that still lasts, or the other way.

        The end of the first would end the second as well, or it would find nobody.
        """
        same_place = self.kind.of_links == other.kind.of_links
        if not {*self.victims} & {*other.victims} or not same_place:
            return False
        if self.kind.of_links and not {*self.peers} & {*other.peers}:
            return False
        lasts = self.at_s < other.ends_s and other.at_s < self.ends_s
        return lasts or self.at_s == other.at_s


@dataclass(frozen=True, slots=True)
class Injected:
    """An injection as it took place, in seconds of the loop.

    What is measured belongs to it until `until_s`. `missed` says why it could not be carried out.
    """

    injection: Injection
    began_s: float
    ended_s: float
    until_s: float
    missed: str = ""
