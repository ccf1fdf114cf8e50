"""Fleets, gossip, a learner's rules, joining, and chaos: mistakes of the third review."""

from tests.benchmarks.mutation.kind import Mutation

FLEETS = ("tests/fleets/test_fleet.py", "tests/fleets/test_chips.py", "tests/fleets/test_links.py")
GOSSIPING = ("tests/learner/test_gossiping.py",)

REVIEW_C = (
    Mutation(
        "belated tokens count for a fleet's yield",
        "islands/fleets/fleet.py",
        "applied = sum(row.applied for row in rows) - durable.belated_tokens",
        "applied = sum(row.applied for row in rows)",
        FLEETS,
    ),
    Mutation(
        "a fleet's traffic leaves moments out",
        "islands/fleets/fleet.py",
        "merges_moments=cell.settings.merge_moments,",
        "merges_moments=False,",
        FLEETS,
    ),
    Mutation(
        "a formula of links leaves moments out",
        "islands/fleets/formulas.py",
        "moments = [(BLOCK, 2 * BLOCK)] if settings.merge_moments else []",
        "moments: list[tuple[int, int]] = []",
        FLEETS,
    ),
    Mutation(
        "links count bytes of the toy",
        "messaging/simulation/network.py",
        "self._network.carried_bytes += size_bytes",
        "self._network.carried_bytes += envelope.size_bytes",
        FLEETS,
    ),
    Mutation(
        "a wait of actors is a step",
        "islands/fleets/chips.py",
        "if self.stepped and start_s - self.stepped[-1][1] <= TOUCHING_S:",
        "if self.stepped:",
        FLEETS,
    ),
    Mutation(
        "a learner that steps no more is not still",
        "islands/fleets/chips.py",
        "end_s = last_s if self.until_s == inf else self.until_s",
        "end_s = last_s",
        FLEETS,
    ),
    Mutation(
        "a step begins where the last one ended, whatever its learner waited for",
        "islands/fleets/chips.py",
        "        self.chip_s += chips * (stop_s - start_s)\n        if self.stepped and",
        (
            "        began_s = self.stepped[-1][1] if self.stepped else start_s\n"
            "        self.chip_s += chips * (stop_s - began_s)\n        if self.stepped and"
        ),
        FLEETS,
    ),
    Mutation(
        "what is being mixed is gathered as well",
        "islands/learner/gossiping.py",
        "if fragment not in mixing and core.accounts",
        "if core.accounts",
        GOSSIPING,
    ),
    Mutation(
        "work is gathered twice over",
        "islands/learner/gossiping.py",
        "    if gossip.gathering:\n        return\n    gossip.gathering = True\n",
        "    gossip.gathering = True\n",
        GOSSIPING,
    ),
    Mutation(
        "gathered work stays in the slow value",
        "islands/learner/gossip_values.py",
        "        slow.value = slow.origin\n",
        "",
        GOSSIPING,
    ),
    Mutation(
        "a snapshot of before the gathering answers a pull",
        "islands/learner/gossiping.py",
        "            core.pulls.snapshots.pop(fragment, None)\n",
        "",
        GOSSIPING,
    ),
    Mutation(
        "shares are summed in the order of their arrival",
        "islands/learner/gossip_values.py",
        "for name in sorted(told)]",
        "for name in told]",
        GOSSIPING,
    ),
    Mutation(
        "a newcomer's rate is a round behind",
        "islands/learner/gossiping.py",
        "clock = (given.round + 1) * core",
        "clock = given.round * core",
        GOSSIPING,
    ),
    Mutation(
        "a newcomer comes to its donor's round once more",
        "islands/learner/gossiping.py",
        "exchanges.begin(core.incarnation, core.steps, gossip.round)",
        "exchanges.begin(core.incarnation, core.steps, gossip.round - 1)",
        GOSSIPING,
    ),
    Mutation(
        "a donor tells the round before",
        "islands/learner/gossiping.py",
        "gossip.exchanges.clock, digest=",
        "gossip.exchanges.clock - 1, digest=",
        GOSSIPING,
    ),
)
