"""The signals that ask a process of a run to end in order, handled on the event loop.

SIGTERM comes from service managers and from hubs, SIGINT from Ctrl-C, and SIGHUP from a terminal
that was closed, or from a connection to the host that was lost. A SIGHUP that is ignored at the
start, as under `nohup`, stays ignored.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def on_ending_signals(handler: Callable[[str], object]) -> Iterator[None]:
    """Call a handler with the name of each ending signal, on the running event loop.

    Args:
        handler: called once for each signal, between two callbacks of the loop.
    """
    loop = asyncio.get_running_loop()
    handled = [
        number
        for number in ENDING
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in handled:
        loop.add_signal_handler(number, handler, number.name)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
