"""The actor of Ray that runs the command of one host of an island. It needs no `islands`.

Ray carries this file's code to its nodes by value, so it imports Python's modules and Ray alone.

    worker of Ray: IslandHost          guard, in a process group of its own
       └─ command, in the guard's group

Nothing of an island outlives its actor. The guard holds one end of a pipe; when the other end is
closed, as the actor's process ends in whatever way, it kills its whole group. The command itself is
killed by the system, too, when the thread that started it is gone.

What is known of a host lies in the cluster's own store of keys (GCS), beside its actor's name:

==============  ===========================  ===================================================
key             written                      holds
==============  ===========================  ===================================================
<name>/began    when the command starts      node, address
<name>/ended    once, when it has ended      code, words
==============  ===========================  ===================================================

So how it ended is known after the actor, its worker and its node are gone.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

STORE = "islands"
"""The part of the store that holds keys of islands."""

GRACE_S = 60.0
"""A command that was asked to end, and has not, is killed after this time."""

_POLL_S = 0.2
_LAST_S = 5.0
_KILLED_S = 2.0
_STORE_TRIES = 30
_WORDS_MAX = 500
_TAIL_BYTES = 8192

_GUARD = "trap '' TERM; echo; read -r _; kill -KILL 0"

Told = dict[str, object]


class IslandHost:
    """One host of an island.

    Args:
        name: the actor's name.
        first: the name of the actor of rank 0, whose address the others are told; None for an
            island of one host.
        rank: number of this host.
        script: what the host runs, in bash.
        environment: variables of the script, secrets included.
        variables: names of the variables of rank and address.
    """

    def __init__(
        self,
        name: str,
        first: str | None,
        rank: int,
        script: str,
        environment: dict[str, str],
        variables: tuple[str, str],
    ) -> None:
        import ray

        context = ray.get_runtime_context()
        self._node: str = context.get_node_id()
        self._address: str = ray.util.get_node_ip_address()
        self._me = context.current_actor
        self._name = name
        self._first = first
        self._rank = rank
        self._script = script
        self._environment = environment
        self._variables = variables
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._group: int | None = None
        # The command must be started by a thread that lives for as long as it does.
        threading.Thread(target=self._live, name="command", daemon=True).start()

    # --- what others ask of it ----------------------------------------------------------------

    def answer(self) -> None:
        """Do nothing: whoever asks learns from Ray that the actor is gone."""

    def end(self) -> None:
        """Ask the command to end, by one SIGTERM to its group; do not wait for it."""
        with self._lock:
            first = not self._asked.is_set()
            self._asked.set()
            if first and self._group is not None:
                self._ask()

    def leave(self) -> None:
        """End the actor, as its command has ended."""
        import ray

        ray.actor.exit_actor()

    # --- the command --------------------------------------------------------------------------

    def _live(self) -> None:
        # Ray blocks SIGINT in its threads, and whoever is started by one inherits that.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        try:
            told = self._run()
        except Exception as error:  # noqa: BLE001  whatever it is, the hub is told
            told = {"code": 1, "words": f"{type(error).__name__}: {error}"}
        if told["code"] == -signal.SIGKILL:
            # Ray kills a worker's children before the worker; then it tells itself what happened.
            threading.Event().wait(_KILLED_S)
        self._write("ended", told)
        self._me.leave.remote()

    def _run(self) -> Told:
        address = self._find_address()
        if address is None:
            return {"code": -signal.SIGTERM, "words": "asked to end before it began"}
        several = {} if self._first is None else self._several(address)
        guard = subprocess.Popen(
            ["bash", "-c", _GUARD],  # noqa: S607  (where the node has it)
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert guard.stdout is not None
        guard.stdout.readline()  # from here on it ignores SIGTERM to its group
        child = subprocess.Popen(
            ["bash", "-c", self._script],  # noqa: S607
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self._environment, **several},
            process_group=guard.pid,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509  (it calls the system and nothing else)
        )
        output = _Output(child)
        with self._lock:
            self._group = guard.pid
            if self._asked.is_set():
                self._ask()
        if self._first is None:
            self._write("began", {"node": self._node, "address": self._address})
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._group = None
            os.killpg(guard.pid, signal.SIGKILL)  # what it left behind, and the guard
        guard.wait()
        return {"code": child.wait(), "words": output.last_line()}

    def _find_address(self) -> str | None:
        """Return rank 0's address, once it is known; None if this host is to end before that."""
        from ray.experimental import internal_kv

        if self._first is None:
            return self._address
        self._write("began", {"node": self._node, "address": self._address})
        while not self._asked.wait(_POLL_S):  # if rank 0 is lost, the hub ends all
            told = internal_kv._internal_kv_get(f"{self._first}/began", namespace=STORE)  # noqa: SLF001
            if told:
                found: Told = json.loads(told)
                return str(found["address"])
        return None

    def _several(self, address: str) -> dict[str, str]:
        rank, place = self._variables
        return {rank: str(self._rank), place: address}

    def _ask(self) -> None:
        """Send SIGTERM, and SIGKILL after a time; the lock is held."""
        group = self._group
        assert group is not None
        os.killpg(group, signal.SIGTERM)
        os.killpg(group, signal.SIGCONT)  # a stopped process would not handle it
        killer = threading.Timer(GRACE_S, self._kill, (group,))
        killer.daemon = True
        killer.start()

    def _kill(self, group: int) -> None:
        with self._lock:
            if self._group == group:
                os.killpg(group, signal.SIGKILL)

    def _write(self, what: str, told: Told) -> None:
        """Write a key, which may take a while if the cluster's head does not answer."""
        from ray.experimental import internal_kv

        for _ in range(_STORE_TRIES):
            with contextlib.suppress(Exception):
                internal_kv._internal_kv_put(  # noqa: SLF001  (it is how others see it)
                    f"{self._name}/{what}", json.dumps(told), overwrite=False, namespace=STORE
                )
                return
            threading.Event().wait(_POLL_S)


class _Output:
    """What a command writes: it goes to the log of Ray's worker, and its end is remembered."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self._tail = b""
        self._thread = threading.Thread(target=self._read, args=(child,), daemon=True)
        self._thread.start()

    def _read(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        while piece := os.read(child.stdout.fileno(), 65536):
            self._tail = (self._tail + piece)[-_TAIL_BYTES:]
            with contextlib.suppress(OSError):  # a full disk of the node
                os.write(1, piece)

    def last_line(self) -> str:
        """Return the last line that is not empty; a process that has left may hold it open."""
        self._thread.join(_LAST_S)
        lines = self._tail.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[-_WORDS_MAX:]


def _die_with_parent() -> Callable[[], object] | None:
    """Return what has the system kill a process once the thread that started it is gone."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    set_parent_death_signal = 1
    return lambda: prctl(set_parent_death_signal, int(signal.SIGKILL))
