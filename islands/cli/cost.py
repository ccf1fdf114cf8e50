"""`islands cost RUN`: what a run has cost until now, by island and region; and a hub's budget."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from islands.cli.parsing import Common
from islands.cli.yaml_file import read_yaml
from islands.protocol.errors import UserError
from islands.settings.commands import CostOptions, named
from islands.settings.groups import BudgetOptions

if TYPE_CHECKING:
    from islands.costs.budget import Budget
    from islands.costs.prices import Prices
    from islands.run.coordinator import Coordinator


def run(options: CostOptions, _: Common) -> int:
    from islands.costs.bill import as_json, table_of
    from islands.costs.spent import bill_of_run

    folder = named(options.folder)
    bill = bill_of_run(folder, prices_in(options.prices))
    if bill.missing:
        raise UserError(f"{options.prices}: {bill.missing[0]}")
    if options.json:
        print(as_json(bill).decode())
    else:
        print("\n".join(table_of(bill)))
    return 0


def prices_in(path: Path | None) -> "Prices | None":
    from islands.costs.prices import read_prices

    return None if path is None else read_prices(read_yaml(path), str(path))


def budget_of(options: BudgetOptions) -> "Budget | None":
    prices = prices_in(options.prices)
    if prices is None or options.budget_cost is None:
        return None
    from islands.costs.budget import Budget

    return Budget(options.budget_cost, prices)


@asynccontextmanager
async def held_to(budget: "Budget | None", hub: "Coordinator") -> AsyncIterator[None]:
    """End a hub's run as an operator would when its money is spent, while the block lasts."""
    if budget is None:
        yield
        return
    from islands.cli.control import Target, tell
    from islands.costs.budget import within
    from islands.protocol.identities import SUPERVISOR
    from islands.protocol.messages.control import Verb
    from islands.run.hosting.process_runtime import say

    address, name = hub.network.url(SUPERVISOR), hub.spec.settings.run
    here = Target((address,), name, hub.key_file, hub.settings.connecting)
    async with within(budget, hub, lambda reason: tell(here, Verb.STOP, reason, 1), say):
        yield
