"""The end of a process whose siblings are gone: it must not hang in a collective for ever.

A device that waits for a lost process waits for longer than anybody will, and so does the thread
that waits for the device. Python cannot end that thread, nor does a process end before its threads
do. So the process is given some time to end by itself, twice, and is then ended at once.
"""

import os
import sys
import threading
from collections.abc import Callable

LIMIT_S = 10.0
"""How long the user's thread may take to hear of the failure, and the process to end after it."""


def end_at_once() -> None:
    """End this process with exit code 1, whatever its threads do."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


class EndOfProcess:
    """Ends the process if it hangs after a failure.

    Args:
        limit_s: how long each of the two may take.
        end: ends the process.
        main: the thread with which the process ends.
    """

    def __init__(
        self,
        limit_s: float = LIMIT_S,
        end: Callable[[], object] = end_at_once,
        main: threading.Thread | None = None,
    ) -> None:
        """Watch nothing yet; `begin` does."""
        self._limit_s = limit_s
        self._end = end
        self._main = main or threading.main_thread()
        self._came = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="end-of-process", daemon=True)

    def begin(self) -> None:
        """Watch from now on, since the process cannot go on with its siblings."""
        self.thread.start()

    def thread_came(self) -> None:
        """Note that the user's thread was told of the failure, so it does not hang."""
        self._came.set()

    def _watch(self) -> None:
        if self._came.wait(self._limit_s):
            self._main.join()  # as long as its user goes on, that is the user's affair
            threading.Event().wait(self._limit_s)  # the interpreter ends meanwhile, if it can
        self._end()
