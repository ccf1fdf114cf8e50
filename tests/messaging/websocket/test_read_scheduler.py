"""Whose message is read next: nobody holds up the loop, and everybody has a turn."""

import asyncio

from messaging.websocket.read_scheduler import MESSAGE_BYTES, ReadScheduler


class Turns:
    """Links that read so many messages each, and in which turn of the loop they did."""

    def __init__(self, at_once: int) -> None:
        self.turns = ReadScheduler(at_once)
        self.read: list[tuple[int, str]] = []
        self._loop = asyncio.get_running_loop()
        self._turn = 0
        self._counting = True
        self._loop.call_soon(self._count)

    def _count(self) -> None:
        self._turn += 1
        if self._counting:
            self._loop.call_soon(self._count)

    async def link(self, name: str, size_bytes: int, count: int, *, member: bool) -> None:
        for _ in range(count):
            await self.turns.wait(size_bytes, member=member)
            self.read.append((self._turn, name))

    def stop(self) -> None:
        self._counting = False

    def most_at_once(self) -> int:
        turns = [turn for turn, _ in self.read]
        return max(turns.count(turn) for turn in turns)


async def test_one_link_that_has_much_lets_others_have_the_loop() -> None:
    for size_bytes, most in ((1000, 10), (10_000, 1), (1_000_000, 1)):
        turns = Turns(10 * (1000 + MESSAGE_BYTES))
        await turns.link("a", size_bytes, 100, member=True)
        assert turns.most_at_once() == most if size_bytes == 1000 else turns.most_at_once() <= 2
        turns.stop()


async def test_every_link_has_as_much_as_every_other() -> None:
    turns = Turns(4000)
    names = "abcdefghij"
    async with asyncio.TaskGroup() as group:  # noqa: TID251  fixed by what is tested
        for name in names:
            group.create_task(turns.link(name, 2000, 20, member=True))
    turns.stop()
    order = [name for _, name in turns.read]
    first = min(len(order) - order[::-1].index(name) for name in names)
    assert all(order[:first].count(name) >= 17 for name in names), "when the first one is through"


async def test_a_crowd_of_guests_does_not_keep_a_member_waiting() -> None:
    turns = Turns(4000)
    async with asyncio.TaskGroup() as group:  # noqa: TID251  fixed by what is tested
        for number in range(100):
            group.create_task(turns.link(f"guest-{number}", 60_000, 3, member=False))
        group.create_task(turns.link("member", 1000, 30, member=True))
    turns.stop()
    order = [name for _, name in turns.read]
    last = len(order) - order[::-1].index("member")
    assert 3 <= last - 30 <= 40, "of 300 messages of guests"
    assert turns.most_at_once() <= 5


async def test_a_link_that_ended_while_it_waited_takes_no_turn() -> None:
    turns = Turns(100)
    waiting = [asyncio.create_task(turns.link(name, 1000, 1, member=True)) for name in "abc"]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    turns.stop()
    assert [name for _, name in turns.read] == ["a", "c"]
