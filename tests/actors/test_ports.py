"""Workers and the disk: in order, off the loop, and over when they are closed."""

import asyncio
import threading
from contextlib import closing
from pathlib import Path

from islands.actors.ports import ThreadWorker
from islands.files.disk import Disk, RealDisk
from islands.lab.world.inline import InlineWorker
from tests.virtual import virtual

LIMIT_S = 20.0


def content(disk: Disk, name: str) -> bytes | None:
    """All of a file, in pieces as they may come; None if there is no such file."""
    file = disk.open(name)
    if file is None:
        return None
    with closing(file):
        whole = bytearray(file.size)
        with memoryview(whole) as view:
            front = file.read_into(view[: file.size // 2])
            assert front + file.read_into(view[front:]) == file.size
        assert file.read_into(memoryview(bytearray(1))) == 0
    return bytes(whole)


async def test_a_thread_works_in_order_and_answers_on_the_loop() -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answers: list[tuple[int, str, bool]] = []
    worker = ThreadWorker("clerk", done.set_exception)

    def answered(result: tuple[int, str]) -> None:
        here = threading.current_thread() is threading.main_thread()
        answers.append((*result, here))
        if len(answers) == 20:
            done.set_result(None)

    for number in range(20):
        worker.submit(
            lambda number=number: (number, threading.current_thread().name),  # type: ignore[misc]
            answered,
        )
    async with asyncio.timeout(LIMIT_S):
        await done
    worker.close()
    assert answers == [(number, "clerk_0", True) for number in range(20)]


async def test_a_failure_of_the_work_is_told_on_the_loop() -> None:
    """The actor hears the error itself; `done` is not called; the next piece is done."""
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[BaseException] = loop.create_future()
    done: asyncio.Future[str] = loop.create_future()
    worker = ThreadWorker("clerk", failed.set_result)
    worker.submit(lambda: 1 // 0, lambda _: done.set_result("answered"))
    worker.submit(lambda: "next", done.set_result)
    async with asyncio.timeout(LIMIT_S):
        assert isinstance(await failed, ZeroDivisionError)
        assert await done == "next"
    worker.close()


async def test_a_closed_thread_finishes_what_it_began_and_takes_no_more() -> None:
    log: list[str] = []
    began, go_on = threading.Event(), threading.Event()
    worker = ThreadWorker("clerk", lambda error: log.append(repr(error)))

    def write() -> None:
        began.set()
        assert go_on.wait(LIMIT_S)
        log.append("written")

    worker.submit(write, lambda _: None)
    assert began.wait(LIMIT_S)
    asyncio.get_running_loop().run_in_executor(None, go_on.set)
    worker.close()
    worker.submit(lambda: log.append("too late"), lambda _: None)
    worker.close()
    assert log == ["written"]


def test_work_without_harm_is_not_waited_for() -> None:
    began, go_on = threading.Event(), threading.Event()
    log: list[str] = []
    threads: list[threading.Thread] = []

    def evaluate() -> None:
        threads.append(threading.current_thread())
        began.set()
        assert go_on.wait(LIMIT_S)
        log.append("evaluated")

    async def main() -> None:
        worker = ThreadWorker("observer", lambda error: log.append(repr(error)), finish=False)
        worker.submit(evaluate, lambda _: log.append("told"))
        worker.submit(lambda: log.append("begun after the end"), lambda _: None)
        assert began.wait(LIMIT_S)
        worker.close()

    asyncio.run(main())
    assert not log
    go_on.set()
    threads[0].join(LIMIT_S)
    assert log == ["evaluated"]


@virtual
async def test_inline_work_is_done_at_once_and_complete_after_its_cost() -> None:
    loop = asyncio.get_running_loop()
    log: list[tuple[float, str]] = []
    done: asyncio.Future[None] = loop.create_future()
    began_s = loop.time()

    def note(what: str) -> None:
        log.append((loop.time() - began_s, what))

    worker = InlineWorker(lambda: 2.0, lambda: note("begin"), lambda: note("complete"))
    worker.submit(lambda: note("work 1"), lambda _: note("done 1"))
    worker.submit(lambda: note("work 2"), lambda _: done.set_result(None))
    await done
    assert log == [
        *((0.0, what) for what in ("begin", "work 1")),
        *((2.0, what) for what in ("complete", "done 1", "begin", "work 2")),
        (4.0, "complete"),
    ]


@virtual
async def test_inline_work_of_a_dead_host_is_never_complete() -> None:
    """After `close` no answer comes, what waits is not begun, and nothing more is taken."""
    log: list[str] = []
    worker = InlineWorker(lambda: 1.0)
    for name in ("first", "second"):
        worker.submit(lambda name=name: log.append(name), lambda _: log.append("done"))  # type: ignore[misc]
    worker.close()
    worker.submit(lambda: log.append("third"), lambda _: None)
    await asyncio.sleep(10.0)
    assert log == ["first"]


async def test_several_threads_work_at_once() -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    meet, left = threading.Barrier(2, timeout=LIMIT_S), [3]
    worker = ThreadWorker("clerk", done.set_exception, threads=2)

    def end(_: object) -> None:
        left[0] -= 1
        if not left[0]:
            done.set_result(None)

    for _ in range(2):
        worker.submit(meet.wait, end)
    worker.submit(lambda: None, end)
    async with asyncio.timeout(LIMIT_S):
        await done
    worker.close()


@virtual
async def test_inline_work_on_several_places_begins_in_order() -> None:
    loop = asyncio.get_running_loop()
    log: list[tuple[float, str]] = []
    costs_s, began_s = iter((5.0, 1.0, 1.0, 1.0)), loop.time()
    worker = InlineWorker(lambda: next(costs_s), places=2)
    for name in "abcd":
        worker.submit(
            lambda: None,
            lambda _, name=name: log.append((loop.time() - began_s, name)),  # type: ignore[misc]
        )
    await asyncio.sleep(6.0)
    assert log == [(1.0, "b"), (2.0, "c"), (3.0, "d"), (5.0, "a")]


def test_a_disk_replaces_whole_files(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "a" / "b")
    assert content(disk, "x") is None
    disk.write("x", [b"one ", memoryview(b"two"), b" three"])
    assert content(disk, "x") == b"one two three"
    disk.write("x", [b"short"])
    assert content(RealDisk(tmp_path / "a" / "b"), "x") == b"short"
    for parts in ([], [b""]):
        disk.write("x", parts)
        assert content(disk, "x") == b"", "an empty file is a file"
