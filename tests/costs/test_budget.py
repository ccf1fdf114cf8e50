"""A run that ends when its money is spent, on the virtual clock."""

import asyncio

import pytest

from islands.costs.bill import Bill, Line
from islands.costs.budget import Budget, watch
from islands.protocol.errors import SettingsError, UnreachableError
from islands.settings.groups import BudgetOptions
from tests.costs.test_prices import prices_of
from tests.virtual import virtual

BUDGET = Budget(100.0, prices_of("{currency: EUR}"))


@virtual
async def test_a_run_is_ended_when_its_money_is_spent() -> None:
    loop, stopped, said = asyncio.get_running_loop(), list[tuple[float, str]](), list[str]()

    async def stop(reason: str) -> None:
        stopped.append((loop.time(), reason))

    def bill() -> Bill:
        return Bill((Line("a", "x", hours_cost=loop.time()),), "EUR")

    await watch(BUDGET, bill, stop, said.append, look_s=7.0)
    assert stopped == [(105.0, "the money is spent: 105.00 of 100.00 EUR")]
    assert said == ["the money is spent: 105.00 of 100.00 EUR; the run ends in order"]


@virtual
async def test_a_supervisor_that_does_not_answer_is_told_again() -> None:
    told, said = list[str](), list[str]()

    async def stop(reason: str) -> None:
        told.append(reason)
        if len(told) < 3:
            raise UnreachableError("no supervisor could be told")

    bill = Bill((Line("a", "x", hours_cost=200.0),), "EUR", ("there is no price of b",))
    await watch(BUDGET, lambda: bill, stop, said.append)
    assert len(told) == 3
    assert [sentence.startswith("budget_cost does not count") for sentence in said] == [
        *(True, False, False, False)
    ]
    assert "cannot be told to end: no supervisor" in said[1]


def test_money_needs_prices() -> None:
    with pytest.raises(SettingsError, match="budget_cost is set; it needs prices"):
        BudgetOptions(budget_cost=3.0)
    for money in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(SettingsError, match="budget_cost is"):
            BudgetOptions(budget_cost=money)
