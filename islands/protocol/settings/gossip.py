"""Settings of gossip: learners exchange values with neighbours, and no syncer merges."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, assert_never

from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import GossipRule, Neighbours
from islands.protocol.settings.setting import Setting


@dataclass(frozen=True, slots=True)
class GossipSettings:
    """Gossip: each round, learners exchange values with their neighbours directly.

    Args:
        neighbours: with whom: `nobody` (a syncer merges), `random_pairs` anew in each round as in
            NoLoCo, the two beside a learner in a `ring` by name, or those of a given `graph`.
        graph: of `graph`: by the name of each learner the names of its neighbours; a line between
            two learners need be named once.
        rule: what follows: `noloco` steps with momentum, `average` averages local values.
        momentum: a, share of the momentum that `noloco` keeps.
        rate: b, learning rate of the group's mean movement in `noloco`.
        pull: g, how far `noloco` moves a value towards the group's mean.
        everyone_every: after so many rounds of a fragment, its next one is among all learners; null
            = never.
    """

    neighbours: Neighbours = Neighbours.NOBODY
    graph: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    rule: GossipRule = GossipRule.NOLOCO
    momentum: Annotated[float, Setting(least=0, below=1)] = 0.5
    rate: Annotated[float, Setting(above=0, most=1)] = 0.7
    pull: Annotated[float, Setting(above=0, most=1)] = 0.7
    everyone_every: Annotated[int | None, Setting(least=1)] = None

    @property
    def on(self) -> bool:
        return self.neighbours is not Neighbours.NOBODY

    @property
    def lines(self) -> dict[str, tuple[str, ...]]:
        """The neighbours of every learner of the graph, by name, whoever named their line."""
        lines: dict[str, dict[str, None]] = {}
        for name, others in self.graph.items():
            lines.setdefault(name, {})
            for other in others:
                lines[name][other] = None
                lines.setdefault(other, {})[name] = None
        return {name: tuple(sorted(lines[name])) for name in sorted(lines)}


def check_graph(gossip: GossipSettings) -> None:
    if (gossip.neighbours is Neighbours.GRAPH) != bool(gossip.graph):
        raise SettingsError(
            f"gossip.neighbours is {gossip.neighbours}, and gossip.graph names "
            f"{len(gossip.graph)} learners; neighbours: graph and a graph go together"
        )
    for name, others in gossip.graph.items():
        if name in others:
            raise SettingsError(f"gossip.graph has {name!r} as its own neighbour; name another")
    apart = _apart(gossip.lines)
    if apart is not None:
        raise SettingsError(
            f"gossip.graph does not connect {apart[0]!r} and {apart[1]!r}, so their models would "
            "never meet; add a line between the parts"
        )


def check_members(gossip: GossipSettings, names: Iterable[str]) -> None:
    members = sorted(names)
    if gossip.on and len(members) == 1:
        raise SettingsError(
            f"gossip.neighbours is {gossip.neighbours}, and the run has one learner, who has no "
            "neighbour; start two or more"
        )
    if not gossip.graph or not members:
        return
    lines = gossip.lines
    for name in lines:
        if name not in members:
            raise SettingsError(
                f"gossip.graph names {name!r}, which is no learner; there are {', '.join(members)}"
            )
    for name in members:
        if name not in lines:
            raise SettingsError(f"gossip.graph does not name {name!r}; give it a neighbour")


def neighbours_mean(gossip: GossipSettings, learners: int) -> float:
    others = learners - 1
    match gossip.neighbours:
        case Neighbours.NOBODY:
            return 0.0
        case Neighbours.RANDOM_PAIRS:
            usual = float(min(1, others))
        case Neighbours.RING:
            usual = float(min(2, others))
        case Neighbours.GRAPH:
            lines = gossip.lines
            usual = sum(map(len, lines.values())) / len(lines)
        case _:
            assert_never(gossip.neighbours)
    every = gossip.everyone_every
    return usual if every is None else (usual * every + others) / (every + 1)


def _apart(lines: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """Return two names that no path joins; None if the graph is connected."""
    if not lines:
        return None
    first = next(iter(lines))
    reached, edge = {first: None}, [first]
    while edge:
        for other in lines[edge.pop()]:
            if other not in reached:
                reached[other] = None
                edge.append(other)
    rest = [name for name in lines if name not in reached]
    return (first, rest[0]) if rest else None
