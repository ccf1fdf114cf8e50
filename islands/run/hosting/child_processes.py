"""The launcher of real processes: it starts, watches, adopts and ends children of this process.

1. A child has its own session, so neither the death of the launcher nor Ctrl-C on the terminal ends
   it. Whoever ends in order stops its children first.
2. The environment of a child tells its name and its folder. The next launcher of the folder adopts
   the children that still live; no other process is ever signalled.
3. The end of a child is noticed at once by its pidfd, or by polling on systems without pidfds.
4. Whatever a child leaves behind in its process group is killed when the child ends.

Processes are spawned and reaped here rather than by asyncio, whose children cannot be adopted.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from islands.actors.ports import ProcessEnd
from islands.files.folder_lock import lock_folder
from islands.protocol.errors import FAILED
from islands.run.hosting import process_identity as processes
from islands.run.hosting import process_output

# What systemd passed to the launcher is not meant for its children, which are no services.
_NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID")
_POLL_S = 0.1


@dataclass(slots=True, eq=False)
class _Child:
    identity: processes.Identity
    ours: bool
    oom_kills: int = 0
    killed: bool = False
    descriptor: int | None = None
    poll: asyncio.TimerHandle | None = None
    grace: asyncio.TimerHandle | None = None


class ProcessLauncher:
    """The child processes of one run folder, by name.

    Every user of the host can read the words of a `command`, so they must hold no secrets; its
    `environment` is set beside the variables of this process. A full log is kept beside the new.
    """

    def __init__(
        self,
        command: Callable[[str], list[str]],
        environment: Callable[[str], dict[str, str]],
        folder: Path,
        ended: Callable[[str, ProcessEnd], None],
        *,
        log_limit_bytes: int = process_output.LIMIT_BYTES,
        log_check_s: float = 10.0,
    ) -> None:
        self._command = command
        self._environment = environment
        self._folder = folder
        self._ended = ended
        self._log_limit_bytes = log_limit_bytes
        self._log_check_s = log_check_s
        self._children: dict[str, _Child] = {}
        self._closed = False
        self._log_timer: asyncio.TimerHandle | None = None
        self._rotation: asyncio.Future[None] | None = None
        self._lock = lock_folder(folder, "processes.lock", "run")  # else two would start each child

    # --- who runs -----------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self._children

    def names(self) -> list[str]:
        return list(self._children)

    def pid(self, name: str) -> int | None:
        child = self._children.get(name)
        return None if child is None else child.identity.pid

    def log(self, name: str) -> Path:
        return self._folder / "processes" / name / "output.log"

    # --- starting -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        if self._closed or name in self._children:
            return
        try:
            identity = self._spawn(name)
        except OSError as error:
            end = ProcessEnd(FAILED, f"cannot be started: {error}")
            asyncio.get_running_loop().call_soon(self._ended, name, end)
        else:
            self._watch(name, _Child(identity, ours=True, oom_kills=process_output.oom_kills()))

    def adopt(self) -> list[str]:
        """Watch the children of an earlier launcher that still live, and forget the others.

        Return the names of all processes that run now; `start` does nothing for them.
        """
        for name, identity in processes.marked(self._folder).items():
            found = processes.facts(identity.pid)
            if name not in self._children and found is not None:
                self._watch(name, _Child(identity, ours=found.parent == os.getpid()))
        return self.names()

    def _spawn(self, name: str) -> processes.Identity:
        arguments = self._command(name)
        inherited = {key: os.environ[key] for key in os.environ if key not in _NOT_INHERITED}
        # Unbuffered, so that the last words of a child that is killed are in its log.
        environment = {"PYTHONUNBUFFERED": "1", **inherited, **self._environment(name)}
        environment[processes.MARK] = processes.mark_of(name, self._folder)
        log = self.log(name)
        log_start = process_output.size_of(log)
        output = process_output.open_output(log)
        try:
            pid = os.posix_spawnp(
                arguments[0],
                arguments,
                environment,
                file_actions=(
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                ),
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # ignored by Python, not by others
            )
        finally:
            os.close(output)
        found = processes.facts(pid)  # the pid still exists, at least as a zombie: only we reap it
        return processes.Identity(pid, 0 if found is None else found.started_ticks, log_start)

    # --- ending -------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        if name in self._children:
            self._children[name].killed = True
        self._signal(name, signal.SIGKILL)

    def stop(self, name: str, grace_s: float) -> None:
        child = self._children.get(name)
        if child is None:
            return
        child.killed = True  # by SIGKILL, if it does not obey
        self._signal(name, signal.SIGTERM)
        self._signal(name, signal.SIGCONT)  # a stopped process would not handle SIGTERM
        if child.grace is not None:
            child.grace.cancel()
        loop = asyncio.get_running_loop()
        child.grace = loop.call_later(
            grace_s, processes.send_signal, child.identity, signal.SIGKILL
        )

    def close(self) -> None:
        """Stop watching, and unlock the folder; processes that still run can be adopted."""
        self._closed = True
        for child in self._children.values():
            self._unwatch(child)
        self._children.clear()
        if self._log_timer is not None:
            self._log_timer.cancel()
        self._lock.close()

    def _signal(self, name: str, number: signal.Signals) -> None:
        child = self._children.get(name)
        if child is not None:
            processes.send_signal(child.identity, number)

    # --- watching -----------------------------------------------------------------------------

    def _watch(self, name: str, child: _Child) -> None:
        loop = asyncio.get_running_loop()
        self._children[name] = child
        child.descriptor = processes.open_pidfd(child.identity)
        if child.descriptor is not None:
            loop.add_reader(child.descriptor, self._look, name, child)
        else:
            child.poll = loop.call_later(_POLL_S, self._look, name, child)
        if self._log_timer is None:
            self._log_timer = loop.call_later(self._log_check_s, self._check_logs)

    def _unwatch(self, child: _Child) -> None:
        if child.descriptor is not None:
            asyncio.get_running_loop().remove_reader(child.descriptor)
            os.close(child.descriptor)
        for timer in (child.poll, child.grace):
            if timer is not None:
                timer.cancel()

    def _look(self, name: str, child: _Child) -> None:
        if not _has_ended(child):
            if child.descriptor is None:
                loop = asyncio.get_running_loop()
                child.poll = loop.call_later(_POLL_S, self._look, name, child)
            return
        exit_code = _reap(child.identity) if child.ours else None
        self._unwatch(child)
        del self._children[name]
        killed = exit_code == -signal.SIGKILL and not child.killed
        no_memory = killed and process_output.oom_kills() > child.oom_kills
        end = process_output.end_of(
            exit_code, self.log(name), child.identity.log_start, no_memory=no_memory
        )
        self._ended(name, end)

    def _check_logs(self) -> None:
        """Rotate log files that grew too long, on a thread, because the disk may be slow."""
        loop = asyncio.get_running_loop()
        self._log_timer = loop.call_later(self._log_check_s, self._check_logs)
        logs = [self.log(name) for name in self._children]
        long = [log for log in logs if process_output.size_of(log) > self._log_limit_bytes]
        if long and (self._rotation is None or self._rotation.done()):
            self._rotation = loop.run_in_executor(None, self._rotate, long)

    def _rotate(self, logs: list[Path]) -> None:
        for log in logs:
            process_output.rotate(log, self._log_limit_bytes)


def _has_ended(child: _Child) -> bool:
    if child.ours:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, child.identity.pid, options) is not None
    return not processes.lives(child.identity)


def _reap(identity: processes.Identity) -> int | None:
    """Kill the rest of a child's process group, then reap the child, which frees its pid.

    Return its exit code; None if other code in this process has reaped it.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(identity.pid, signal.SIGKILL)
    try:
        _, status = os.waitpid(identity.pid, 0)
    except ChildProcessError:  # other code in this process reaped it
        return None
    return os.waitstatus_to_exitcode(status)
