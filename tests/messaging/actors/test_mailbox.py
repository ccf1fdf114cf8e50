"""Mailboxes: bounded, with one reader and no lost message."""

import asyncio

import pytest

from messaging.actors.mailbox import Mailbox
from messaging.actors.scope import Scope
from messaging.errors import LocalFault, MailboxClosed
from messaging.simulation.virtual_time import run_virtual
from tests.virtual import virtual


def test_a_full_mailbox_refuses() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    assert [mailbox.put_nowait(number) for number in (1, 2, 3)] == [True, True, False]
    assert mailbox.clear() == [1, 2]
    assert mailbox.high_water == 2


async def test_get_waits_for_a_message() -> None:
    mailbox: Mailbox[str] = Mailbox(1)
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    assert mailbox.put_nowait("hello")
    assert await reader == "hello"


async def test_cancelled_reader_loses_nothing() -> None:
    mailbox: Mailbox[str] = Mailbox(1)
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    mailbox.put_nowait("hello")
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await mailbox.get() == "hello"


async def test_second_reader_is_refused() -> None:
    mailbox: Mailbox[str] = Mailbox(1)
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    with pytest.raises(LocalFault, match="one reader"):
        await mailbox.get()
    mailbox.close()
    with pytest.raises(MailboxClosed):
        await reader


async def test_closed_mailbox_is_read_to_its_end() -> None:
    mailbox: Mailbox[int] = Mailbox(4)
    mailbox.put_nowait(1)
    mailbox.close()
    assert not mailbox.put_nowait(2)
    assert await mailbox.get() == 1
    with pytest.raises(MailboxClosed):
        await mailbox.get()


@virtual
async def test_writers_wait_for_room_in_the_order_of_asking() -> None:
    mailbox: Mailbox[int] = Mailbox(100, room=2)
    order: list[int] = []

    async def write(number: int) -> None:
        await mailbox.wait_room()
        order.append(number)
        mailbox.put_nowait(number)

    async with Scope() as scope:
        for number in range(5):
            scope.spawn(write(number), f"{number}")
        await asyncio.sleep(1)
        assert order == [0, 1]
        assert mailbox.put_nowait(99)
        for read in (0, 1, 99, 2, 3, 4):
            assert await mailbox.get() == read
            await asyncio.sleep(1)
    assert order == [0, 1, 2, 3, 4]
    assert mailbox.high_water == 3


@virtual
async def test_a_cancelled_writer_hands_its_turn_on() -> None:
    mailbox: Mailbox[int] = Mailbox(100, room=1)
    mailbox.put_nowait(0)
    async with Scope() as scope:
        writers = [scope.spawn(mailbox.wait_room(), f"{number}") for number in range(3)]
        await asyncio.sleep(1)
        writers[0].cancel()
        await asyncio.sleep(1)
        assert await mailbox.get() == 0  # the second writer has its turn
        writers[1].cancel()
        await asyncio.wait_for(writers[2], 1)


@pytest.mark.parametrize(("room", "eager", "at_once"), [(1, 1, 1), (4, 3, 8), (16, 40, 8)])
def test_nobody_waits_longer_than_one_message_of_each_other(
    room: int, eager: int, at_once: int
) -> None:
    async def main() -> int:
        mailbox: Mailbox[int] = Mailbox(10_000, room=room)
        handled, longest = 0, 0

        async def write_eagerly() -> None:
            while True:  # until the mailbox is closed
                await mailbox.wait_room()
                if not mailbox.put_nowait(0):
                    return

        async def write_now_and_then(pause_s: int) -> None:
            nonlocal longest
            while not mailbox.closed:
                before = handled
                await mailbox.wait_room()
                mailbox.put_nowait(1)
                longest = max(longest, handled - before)
                await asyncio.sleep(pause_s)

        async with Scope() as scope:
            for number in range(eager):
                scope.spawn(write_eagerly(), f"eager {number}")
            for number in range(2):
                scope.spawn(write_now_and_then(1 + number), f"honest {number}")
            for _ in range(200):
                await asyncio.sleep(0.5)
                for _ in range(at_once):
                    handled += await mailbox.get() is not None
            mailbox.close()
        assert mailbox.high_water <= room
        return longest

    assert 0 < run_virtual(main(), limit_s=1000) <= eager + 2 + at_once


@virtual
async def test_a_newcomer_does_not_take_the_place_of_one_that_waits() -> None:
    mailbox: Mailbox[int] = Mailbox(100, room=1)
    mailbox.put_nowait(0)
    order: list[str] = []

    async def write(name: str) -> None:
        await mailbox.wait_room()
        order.append(name)
        mailbox.put_nowait(1)

    async with Scope() as scope:
        scope.spawn(write("first"), "first")
        await asyncio.sleep(1)
        scope.spawn(write("newcomer"), "newcomer")
        assert await mailbox.get() == 0
        for _ in range(2):
            await asyncio.sleep(1)
            await mailbox.get()
    assert order == ["first", "newcomer"]


@virtual
async def test_one_cancelled_in_its_turn_hands_it_on() -> None:
    mailbox: Mailbox[int] = Mailbox(100, room=1)
    mailbox.put_nowait(0)
    async with Scope() as scope:
        writers = [scope.spawn(mailbox.wait_room(), f"{number}") for number in range(2)]
        await asyncio.sleep(1)
        assert await mailbox.get() == 0
        writers[0].cancel()  # in the same moment
        await asyncio.wait_for(writers[1], 1)
        assert writers[0].cancelled()
        await asyncio.wait_for(mailbox.wait_room(), 1)


@virtual
async def test_a_closed_mailbox_keeps_no_writer_waiting() -> None:
    mailbox: Mailbox[int] = Mailbox(100, room=1)
    mailbox.put_nowait(0)
    async with Scope() as scope:
        writers = [scope.spawn(mailbox.wait_room(), f"{number}") for number in range(3)]
        await asyncio.sleep(1)
        mailbox.close()
        await asyncio.wait(writers)  # noqa: TID251  one set of writers
    assert not mailbox.put_nowait(1)
