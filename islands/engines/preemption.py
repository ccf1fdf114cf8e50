"""Leave in order before a cloud takes the host: `python -m islands.engines.preemption CLOUD …`.

    python -m islands.engines.preemption aws -- python -m islands.learner --supervisor …

It runs a command, asks the metadata server of its host's cloud whether the host is to be taken
away, and gives the command SIGTERM when it is: a learner then leaves in order, with what it was
asked for answered and its leases returned. Several clouds may be named (`aws,gcp`) where it is not
known which one it will be; a metadata server that does not answer is told once, and harms nothing.

=====  ==================================================  ============  =====================
cloud  a notice is                                         asked every   time left
=====  ==================================================  ============  =====================
aws    an action in `spot/instance-action`                 5 s           that of its `time`
azure  an event of the `LOSSES` that names this machine    1 s           that of `NotBefore`
gcp    TRUE in `preempted`                                 1 s           30 s
gcp    TERMINATE_ON_HOST_MAINTENANCE                       1 s           60 s, longer with GPUs
=====  ==================================================  ============  =====================

AWS also recommends to leave an instance that may be taken (`recommendations/rebalance`). It is not
followed: many of these are kept for hours, and a learner leaves within seconds.

Reference:
    docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html;
    learn.microsoft.com/en-us/azure/virtual-machines/linux/scheduled-events;
    cloud.google.com/compute/docs/instances/preemptible and
    cloud.google.com/compute/docs/metadata/getting-live-migration-notice.
"""

import argparse
import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Protocol, TypeVar

import msgspec

from islands.engines.needs import CLOUDS
from islands.protocol.errors import DONE
from islands.run.hosting.process_runtime import on_ending_signals, say
from messaging.clock import Clock, WallClock

LEAVE_S = 120.0
"""A notice is acted upon when so little is left: some tell of days ahead, and are withdrawn."""
GCP_PREEMPTED_S, GCP_MAINTENANCE_S = 30.0, 60.0
TAKEN = 75
"""Exit code of a command that left after a notice, EX_TEMPFAIL of sysexits.h: the run goes on.

It is none that a signal leaves (143), so an engine that starts such a command again, and no other,
is not misled by hosts that it ended itself.
"""
LEFT = (DONE, 128 + signal.SIGTERM)
"""Exit codes of commands that leave in order when they are asked to."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a command that cannot be started, as a shell gives them."""
PR_SET_PDEATHSIG = 1
LOSSES = ("Preempt", "Reboot", "Redeploy", "Terminate")
"""Events of Azure after which nothing of a process is left; Freeze passes after seconds."""


T = TypeVar("T")

# --- what is a notice -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notice:
    """A cloud takes this host away.

    Args:
        why: what it does, such as "preempts this instance".
        left_s: seconds until then, at least.
    """

    why: str
    left_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A metadata server's answer to one question."""

    status: int
    text: str


class UnreadableError(Exception):
    """A metadata server's answer cannot be understood; the message says why."""


class AwsAction(msgspec.Struct):
    """The answer of AWS once there is a notice."""

    action: str
    time: str


class AzureEvent(msgspec.Struct, rename="pascal"):
    """One of the events that Azure tells to all machines of a group."""

    event_type: str
    resources: list[str] = []
    not_before: str = ""


class AzureEvents(msgspec.Struct, rename="pascal"):
    """All events of a group."""

    events: list[AzureEvent]


def aws_notice(answers: Sequence[Answer], now_s: float) -> Notice | None:
    """Return the notice of AWS: there is no page (404) until there is one.

    Args:
        answers: that to `latest/meta-data/spot/instance-action`.
        now_s: seconds since 1970.

    Raises:
        UnreadableError: it is no answer of this server.
    """
    (answer,) = answers
    if answer.status == HTTPStatus.NOT_FOUND:
        return None
    told = _decoded(answer, AwsAction)
    left_s = _seconds_to(datetime.fromisoformat, told.time, now_s)
    return Notice(f"is to {told.action} this instance", left_s)


def azure_notice(answers: Sequence[Answer], now_s: float) -> Notice | None:
    """Return the soonest loss that Azure tells of this machine.

    Args:
        answers: those to `metadata/scheduledevents` and `metadata/instance/compute/name`.
        now_s: seconds since 1970.

    Raises:
        UnreadableError: one of them is no answer of this server.
    """
    told, name = _decoded(answers[0], AzureEvents), _text(answers[1])
    losses = [
        Notice(
            f"has an event {event.event_type} for this machine",
            _seconds_to(parsedate_to_datetime, event.not_before, now_s) if event.not_before else 0,
        )
        for event in told.events
        if event.event_type in LOSSES and name in event.resources
    ]
    return min(losses, key=lambda loss: loss.left_s, default=None)


def gcp_notice(answers: Sequence[Answer], _: float) -> Notice | None:
    """Return the notice of Google Cloud, which tells no time.

    Args:
        answers: those to `instance/preempted` and `instance/maintenance-event`.

    Raises:
        UnreadableError: one of them is no answer of this server.
    """
    preempted, event = map(_text, answers)
    if preempted == "TRUE":
        return Notice("preempts this instance", GCP_PREEMPTED_S)
    if event == "TERMINATE_ON_HOST_MAINTENANCE":
        return Notice("ends this instance for maintenance of its host", GCP_MAINTENANCE_S)
    return None


def _text(answer: Answer) -> str:
    if answer.status != HTTPStatus.OK:
        raise UnreadableError(f"it answers with status {answer.status}")
    return answer.text.strip()


def _decoded(answer: Answer, kind: type[T]) -> T:
    text = _text(answer)
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise UnreadableError(f"its answer is {text[:80]!r}: {error}") from error


def _seconds_to(parse: Callable[[str], datetime], told: str, now_s: float) -> float:
    try:
        return max(0.0, parse(told).timestamp() - now_s)
    except ValueError as error:
        raise UnreadableError(f"its answer has the time {told!r}") from error


# --- whom to ask ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cloud:
    """How a cloud is asked.

    Args:
        base: address of its metadata server, which each of its hosts reaches.
        pages: paths of what is asked.
        every_s: pause between questions; AWS and Azure advise theirs.
        read: tells a notice from the answers and the time.
        headers: without which the server refuses.
        token: path that gives a token for the questions, as AWS wants it; else empty.
        patience_s: longest wait for one answer; Azure begins to collect events when first asked,
            which takes up to two minutes.
    """

    base: str
    pages: tuple[str, ...]
    every_s: float
    read: Callable[[Sequence[Answer], float], Notice | None]
    headers: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    patience_s: float = 2.0


KNOWN: Mapping[str, Cloud] = {
    "aws": Cloud(
        "http://169.254.169.254",
        ("/latest/meta-data/spot/instance-action",),
        5.0,
        aws_notice,
        token="/latest/api/token",  # noqa: S106  a path
    ),
    "azure": Cloud(
        "http://169.254.169.254",
        (
            "/metadata/scheduledevents?api-version=2020-07-01",
            "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
        ),
        1.0,
        azure_notice,
        {"Metadata": "true"},
        patience_s=150.0,
    ),
    "gcp": Cloud(
        "http://metadata.google.internal",
        (
            "/computeMetadata/v1/instance/preempted",
            "/computeMetadata/v1/instance/maintenance-event",
        ),
        1.0,
        gcp_notice,
        {"Metadata-Flavor": "Google"},
    ),
}


class Ask(Protocol):
    """Puts a question to a metadata server."""

    def __call__(self, method: str, url: str, headers: Mapping[str, str]) -> Awaitable[Answer]:
        """Return its answer; raises `OSError` or `TimeoutError` if there is none."""


async def wait_notice(
    name: str, ask: Ask, clock: Clock, tell: Callable[[str], object], base: str | None = None
) -> Notice:
    """Ask one cloud until it takes this host away, and return its notice.

    Args:
        name: which cloud.
        ask: puts a question to its metadata server.
        clock: seconds since 1970, with which the times in notices are compared.
        tell: told once if the server does not answer as it should.
        base: address of the server, where it is not the usual one.
    """
    cloud, told = KNOWN[name], False
    base = base or cloud.base
    while True:  # for as long as the command runs
        try:
            async with asyncio.timeout(cloud.patience_s):
                answers = await _answers(cloud, base, ask)
            notice = cloud.read(answers, clock.now_s())
            if notice is not None and notice.left_s <= LEAVE_S:
                return notice
        except (OSError, TimeoutError, UnreadableError) as error:
            why = str(error) or f"there is no answer in {cloud.patience_s:.0f} s"
            if not told:
                tell(f"preemption: no notices from {name} until {base} answers: {why}")
            told = True
        await asyncio.sleep(cloud.every_s)


async def _answers(cloud: Cloud, base: str, ask: Ask) -> list[Answer]:
    headers = dict(cloud.headers)
    if cloud.token:  # a new one each time, which never expires
        token = await ask("PUT", base + cloud.token, {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        headers["X-aws-ec2-metadata-token"] = _text(token)
    return [await ask("GET", base + page, headers) for page in cloud.pages]


# --- the command ------------------------------------------------------------------------------


class Ending:
    """Passes on what asks the command to end.

    A learner ends at once when it is asked for the second time. The engine's own SIGTERM often
    follows a notice, as the host shuts down: the first one after it is not passed on.

    Args:
        give: gives the command a signal.

    Attributes:
        noticed: whether it leaves because of a notice.
    """

    def __init__(self, give: Callable[[signal.Signals], object]) -> None:
        self._give = give
        self._asked = False
        self._awaited = False
        self.noticed = False

    def on_notice(self) -> None:
        """Have the command leave, unless somebody did before."""
        if not self._asked:
            self._asked = self._awaited = self.noticed = True
            self._give(signal.SIGTERM)

    def on_signal(self, name: str) -> None:
        """Pass on a signal that this process received."""
        if self._awaited:
            self._awaited = False
            return
        self._asked = True
        self._give(signal.Signals[name])


def exit_code(returned: int, *, noticed: bool) -> int:
    """Return the exit code for a command's: 128 + n for signal n, as a shell tells it.

    A command that left in order because of a notice is not done: its code becomes `TAKEN`.
    """
    code = 128 - returned if returned < 0 else returned
    return TAKEN if noticed and code in LEFT else code


async def run(clouds: Sequence[str], command: Sequence[str], base: str | None = None) -> int:
    """Run a command until it ends, or has left since a cloud takes the host; return the exit code.

    Args:
        clouds: names of the clouds that are asked.
        command: the command and its arguments.
        base: address of all metadata servers, where it is not the usual one.
    """
    process: asyncio.subprocess.Process | None = None
    early: list[signal.Signals] = []

    def give(number: signal.Signals) -> None:
        if process is None:
            early.append(number)
            return
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, number)

    ending = Ending(give)
    with on_ending_signals(ending.on_signal):
        try:
            process = await asyncio.create_subprocess_exec(
                *command, process_group=0, preexec_fn=_dies_with(os.getpid())
            )
        except OSError as error:
            say(f"{command[0]}: {error.strerror or error}")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        for number in early:
            give(number)
        asking = asyncio.create_task(_ask_all(clouds, base, ending))
        try:
            returned = await process.wait()
        finally:
            asking.cancel()
    return exit_code(returned, noticed=ending.noticed)


async def _ask_all(clouds: Sequence[str], base: str | None, ending: Ending) -> None:
    """Ask all clouds; have the command leave when one of them takes this host."""
    import aiohttp  # the command has begun meanwhile

    async with aiohttp.ClientSession() as session:  # which passes by proxies

        async def ask(method: str, url: str, headers: Mapping[str, str]) -> Answer:
            try:
                async with session.request(method, url, headers=headers) as answer:
                    return Answer(answer.status, await answer.text(errors="replace"))
            except aiohttp.ClientError as error:
                raise OSError(" ".join(str(error).split())) from error

        async def attend(name: str) -> None:
            notice = await wait_notice(name, ask, WallClock(), say, base)
            say(f"preemption: {name} {notice.why} in {notice.left_s:.0f} s; the command leaves")
            ending.on_notice()

        await asyncio.gather(*map(attend, clouds))


def _dies_with(parent: int) -> Callable[[], None]:
    """Return what a child runs before its command, so that it is killed if `parent` dies."""
    prctl = ctypes.CDLL(None).prctl  # before the fork, after which no library may be opened

    def before() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before that
            os._exit(128 + signal.SIGKILL)

    return before


def main(arguments: list[str]) -> int:
    """Run a command under the notices of clouds; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m islands.engines.preemption", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("clouds", metavar="CLOUD[,CLOUD]", type=_clouds, help=", ".join(CLOUDS))
    parser.add_argument("--metadata", metavar="URL", help="metadata server, if not the usual one")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --")
    chosen = parser.parse_args(arguments)
    return asyncio.run(run(chosen.clouds, chosen.command, chosen.metadata))


def _clouds(told: str) -> tuple[str, ...]:
    names = tuple(told.split(","))
    strange = [name for name in names if name not in CLOUDS]
    if strange:
        raise argparse.ArgumentTypeError(f"{strange[0]!r} is none of {', '.join(CLOUDS)}")
    return names


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
