"""Attacks on a hub beside which honest learners go on: a table of what each of them does to it.

    python -m tests.benchmarks.attacks [--seconds 10] [--only NAME ...]

For each attack a hub is started in a process of its own (supervisor, syncer, journal, run folder)
with two learners whose devices sleep. Merges, memory, files that grow and how late the hub's loop
is are taken before, during and after; meanwhile an honest learner joins, and is timed. The last
line of output is JSON. The exit code is 0 if every hub lived, nobody honest was evicted, and
everybody who was honest came in.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from islands.protocol.identities import Role
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.run.hosting.hub_requests import Requester, fetch_run_spec
from islands.run.hosting.process_runtime import allow_open_files
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret, client_tls
from tests.benchmarks import attackers
from tests.benchmarks.attackers import GONE, Target
from tests.messaging.certificates import make_certificates

HONEST = ("learner-0000", "learner-0001")
READY_S = 60.0
REST_S = 5.0
ATTACKERS_NICE = 10

Attack = Callable[[Target], Awaitable[int]]


class Entry(msgspec.Struct):
    """What is read of the hub's tape."""

    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """What a hub is like at one moment."""

    at_s: float
    merges: int
    evicted: int
    rss_mib: float
    files_kib: float
    late_ms: dict[int, int]


class Attacked:
    """A hub and its honest learners, as processes.

    Args:
        folder: for everything.
        tls: whether the hub listens with TLS.
    """

    def __init__(self, folder: Path, *, tls: bool) -> None:
        """Start them; the token is theirs."""
        self.folder = folder
        environment = {**os.environ, "ISLANDS_TOKEN_FILE": str(folder / "token")}
        words = [sys.executable, "-m", "tests.benchmarks.attacked_hub", str(folder)]
        self.tls = None
        if tls:
            files = make_certificates(folder)
            words += ["--certificate", str(files.server), "--key", str(files.server_key)]
            environment["SSL_CERT_FILE"] = str(files.authority)
            self.tls = client_tls(files.authority)
        self._errors = (folder / "stderr").open("wb")
        self.hub = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=self._errors, env=environment
        )
        assert self.hub.stdout is not None, "a pipe"
        self.url = self.hub.stdout.readline().decode().strip()
        words = ["-m", "tests.benchmarks.crowd", "--join", self.url, "--names", ",".join(HONEST)]
        self.learners = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, env=environment, stderr=self._errors
        )
        os.nice(ATTACKERS_NICE)  # attackers take no CPU from the hub, as if on other machines

    async def target(self) -> Target:
        """What an attacker with the token learns of it."""
        secret = Secret.read(self.folder / "token")
        network = WebsocketNetwork(MESSAGE_TYPES, secret=secret, client_tls=self.tls)
        try:
            requester = Requester(Role.OBSERVER, "requester")
            spec, plan = await fetch_run_spec(
                network, (self.url,), requester, wait_s=READY_S, say=print
            )
        finally:
            await network.close()
        run, layout = spec.settings.run, plan.layout
        return Target(self.url, secret, layout, run, self.tls)

    def state(self) -> State:
        """Look at it from outside."""
        run, counted = self.folder / "run", {"merged": 0, "evicted": 0}
        for tape in sorted(run.glob("tape.jsonl*")):
            for line in tape.read_bytes().splitlines():
                entry = _entry(line)
                honest = entry.kind != "evicted" or entry.name in HONEST
                if entry.kind in counted and honest:
                    counted[entry.kind] += 1
        status = Path(f"/proc/{self.hub.pid}/status").read_text()
        rss = next((line for line in status.splitlines() if line.startswith("VmRSS")), "x 0")
        told = json.loads((self.folder / "loop.json").read_text())
        written = [run / "run.log", run / "tape.jsonl", self.folder / "stderr"]
        return State(
            *(time.monotonic(), counted["merged"], counted["evicted"]),
            rss_mib=int(rss.split()[1]) / 1024,
            files_kib=sum(path.stat().st_size for path in written if path.exists()) / 1024,
            late_ms={int(late): int(count) for late, count in told["late_ms"]},
        )

    async def until_merging(self) -> None:
        """Wait until everybody honest takes part."""
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s:
            await asyncio.sleep(0.5)
            if (self.folder / "loop.json").exists() and self.state().merges > 10:
                return
        raise TimeoutError("the hub merges nothing before it is attacked")

    def end(self) -> int | None:
        """End all processes; returns the code of a hub that had ended by itself, else None."""
        code = self.hub.poll()
        assert self.learners.stdin is not None, "a pipe"
        self.learners.stdin.close()
        self.learners.kill()
        self.learners.wait()
        if code is None:
            self.hub.send_signal(signal.SIGTERM)
            try:
                self.hub.wait(30)
            except subprocess.TimeoutExpired:
                self.hub.kill()
                self.hub.wait()
        self._errors.close()
        return code


def _entry(line: bytes) -> Entry:
    try:
        return msgspec.json.decode(line, type=Entry)
    except msgspec.MsgspecError:
        return Entry("")


def late_ms(before: State, after: State) -> tuple[int, int]:
    """How late the loop was between two moments: the 99th percentile, and the most."""
    counts = {late: count - before.late_ms.get(late, 0) for late, count in after.late_ms.items()}
    counts = {late: count for late, count in sorted(counts.items()) if count}
    wanted, seen = 0.99 * sum(counts.values()), 0
    for late, count in counts.items():
        seen += count
        if seen >= wanted:
            return late, max(counts)
    return 0, 0


async def join_beside(target: Target, name: str) -> float | None:
    """Seconds until an honest newcomer is admitted, trying again as learners do; None: never."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < READY_S:
        try:
            network, _, _ = await attackers.admit(target, name)
        except GONE:
            await asyncio.sleep(0.1)
            continue
        await network.close()
        return time.monotonic() - began_s
    return None


async def watch(hub: Attacked, peaks: list[float]) -> None:
    """Note how much memory the hub holds, for ever."""
    while True:  # until cancelled
        await asyncio.sleep(0.2)
        peaks.append(hub.state().rss_mib if hub.hub.poll() is None else 0.0)


async def while_alive(hub: Attacked, attack: Awaitable[int]) -> int:
    """Attack until that is over, or the hub is."""
    attacking = asyncio.ensure_future(attack)
    while hub.hub.poll() is None:
        done, _ = await asyncio.wait([attacking], timeout=0.5)
        if done:
            return attacking.result()
    attacking.cancel()
    return 0


async def attacked(name: str, attack: Attack, *, tls: bool) -> dict[str, object]:
    """One attack on a fresh hub; returns its row of the table."""
    with tempfile.TemporaryDirectory() as place:
        hub = Attacked(Path(place), tls=tls)
        try:
            await hub.until_merging()
            target = await hub.target()
            calm = hub.state()
            await asyncio.sleep(REST_S)
            before = hub.state()
            peaks: list[float] = []
            watching = asyncio.create_task(watch(hub, peaks))
            joining = asyncio.create_task(join_beside(target, "honest"))
            try:
                sent = await while_alive(hub, attack(target))
                joined_s = await joining if hub.hub.poll() is None else None
            finally:
                joining.cancel()
                watching.cancel()
            during = hub.state() if hub.hub.poll() is None else before
            await asyncio.sleep(REST_S)
            after = hub.state() if hub.hub.poll() is None else before
        finally:
            code = hub.end()
        calm_s, attacked_s = before.at_s - calm.at_s, during.at_s - before.at_s
        p99, most = late_ms(before, during)
        return {
            "attack": name,
            "sent": sent,
            "seconds": round(attacked_s, 1),
            "lives": code is None,
            "joined_s": None if joined_s is None else round(joined_s, 2),
            "merges_per_s_before": round((before.merges - calm.merges) / calm_s, 1),
            "merges_per_s": round((during.merges - before.merges) / max(0.1, attacked_s), 1),
            "honest_evicted": after.evicted,
            "rss_mib_before": round(before.rss_mib),
            "rss_mib_most": round(max(peaks, default=0.0)),
            "rss_mib_after": round(after.rss_mib),
            "log_kib_per_s": round((during.files_kib - before.files_kib) / max(0.1, attacked_s), 1),
            "loop_p99_ms_before": late_ms(calm, before)[0],
            "loop_p99_ms": p99,
            "loop_most_ms": most,
        }


def attacks(seconds: float) -> dict[str, tuple[Attack, bool]]:
    """Every attack by name, and whether it is on a hub with TLS."""
    return {
        "silent connections, 600/s": (partial(attackers.silent, seconds=seconds), False),
        "silent connections under TLS, 200/s": (
            partial(attackers.silent, seconds=seconds, per_s=200),
            True,
        ),
        "malformed requests": (partial(attackers.malformed, seconds=seconds), False),
        "endless headers of 60 strangers": (
            partial(attackers.endless_headers, seconds=seconds),
            False,
        ),
        "empty pieces of 200 sessions": (
            partial(attackers.empty_pieces, seconds=seconds),
            False,
        ),
        "500 held sessions": (partial(attackers.held_sessions, seconds=seconds), False),
        "small messages of 200 sessions": (
            partial(attackers.small_messages, seconds=seconds),
            False,
        ),
        "documents of 8,000 maps": (partial(attackers.many_values, seconds=seconds), False),
        "ends of the run, 32 MiB each": (
            partial(attackers.ends_of_the_run, seconds=seconds),
            False,
        ),
        "stolen names": (partial(attackers.stolen_names, seconds=seconds), False),
        "poisonous words": (partial(attackers.poisonous_words, seconds=seconds), False),
        "relay to who does not read": (partial(attackers.unread_relay, seconds=seconds), False),
    }


def main(arguments: list[str]) -> int:
    """Attack, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.attacks")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--only", nargs="*", default=[], help="words in the names of attacks")
    parser.add_argument("--one", help="the name of one attack, in this very process")
    chosen = parser.parse_args(arguments)
    allow_open_files()
    every = attacks(chosen.seconds)
    if chosen.one is not None:
        attack, tls = every[chosen.one]
        row = asyncio.run(attacked(chosen.one, attack, tls=tls))
        sys.stdout.write(json.dumps(row) + "\n")
        return 0
    rows: list[dict[str, object]] = []
    for name in every:
        if chosen.only and not any(word in name for word in chosen.only):
            continue
        words = [sys.executable, "-m", "tests.benchmarks.attacks", "--one", name, *arguments]
        told = subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout.splitlines()
        rows.append(json.loads(told[-1]) if told else {"attack": name, "lives": False})
        sys.stdout.write(json.dumps(rows[-1]) + "\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps({"rows": rows}) + "\n")
    good = [
        row["lives"] and row.get("honest_evicted") == 0 and row.get("joined_s") is not None
        for row in rows
    ]
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
