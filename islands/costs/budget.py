"""A run that ends in order when its money is spent.

It is judged by the records that `islands cost` reads, so the hours of earlier starts of the hub
count; and the run is ended as by an operator's `stop`, so what closing costs comes on top.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from islands.costs.bill import Bill, amount, bill_of
from islands.costs.prices import Prices
from islands.costs.spent import placed_by_engines, stays_of
from islands.protocol.errors import IslandsError
from islands.run.coordinator import Coordinator
from messaging.actors.scope import Scope
from messaging.clock import WallClock
from messaging.errors import LinkLost, LocalFault

LOOK_S = 10.0
"""Time between two looks at what is spent."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Money that a run may cost, and the prices by which it is counted."""

    cost: float
    prices: Prices

    def spent_by(self, bill: Bill) -> str:
        """Return why a run has to end, as a reason in words; empty while there is money."""
        cost = bill.whole.cost
        if cost < self.cost:
            return ""
        spent, all_of_it = amount(cost), amount(self.cost)
        return f"the money is spent: {spent} of {all_of_it} {self.prices.currency}"


async def watch(
    budget: Budget,
    bill: Callable[[], Bill],
    stop: Callable[[str], Awaitable[object]],
    say: Callable[[str], object],
    look_s: float = LOOK_S,
) -> None:
    """Look at what a run has cost until its money is spent, then end it.

    An island without a price is not counted, and reported once. `stop` is called again if no
    supervisor answers.
    """
    reported = set[str]()
    while True:  # until the run has been asked to end
        now = bill()
        for sentence in now.missing:
            if sentence not in reported:
                reported.add(sentence)
                say(f"budget_cost does not count everything: {sentence}")
        reason = budget.spent_by(now)
        if reason:
            try:
                await stop(reason)
            except (IslandsError, LinkLost, LocalFault) as error:
                say(f"{reason}, and the run cannot be told to end: {error}")
            else:
                say(f"{reason}; the run ends in order")
                return
        await asyncio.sleep(look_s)


@asynccontextmanager
async def within(
    budget: Budget | None,
    hub: Coordinator,
    stop: Callable[[str], Awaitable[object]],
    say: Callable[[str], object],
) -> AsyncIterator[None]:
    """Hold a hub to its budget while the block lasts; None: it has none."""
    if budget is None:
        yield
        return

    def failed(part: str, error: BaseException) -> None:
        say(f"{part} failed, so nobody ends the run when the money is spent: {error!r}")

    wall = WallClock()

    def bill() -> Bill:
        fragments, now_s = len(hub.plan.layout.fragments), hub.wall_s
        placed = placed_by_engines(hub.settings.folder, wall.now_s())
        stays = stays_of(hub.folder.figures, now_s, fragments, budget.prices, placed)
        return bill_of(stays, budget.prices, now_s)

    async with Scope("budget", failed) as scope:
        scope.spawn(watch(budget, bill, stop, say), "the watch of budget_cost")
        yield
