"""A real Prometheus for tests and benchmarks: Debian's, on loopback, with a store of its own.

prometheus = Prometheus(room, {"hub": Target(port)}, rules_file())
await prometheus.ready()
assert await prometheus.query("islands_ready") == [({"case": "hub", …}, 1.0)]
"""

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml

from islands.lab.faults.proxy import HOST, free_port
from tests.integration.programs import Program, Room

LOOK_S = 0.5
READY_S = 60.0
ASK_S = 60.0

Found = list[tuple[dict[str, str], float]]
"""Series as their labels, each with its newest value."""


def missing() -> str | None:
    """Why there can be no Prometheus here; None if there can."""
    tools = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"there is no {tools[0]} command (apt-get install prometheus)" if tools else None


@dataclass(frozen=True, slots=True)
class Target:
    """A process that is scraped, by TLS if it has a certificate, under the name of its case."""

    port: int
    authority: Path | None = None


class Prometheus:
    """One Prometheus, which ends with its room.

    Args:
        room: where it is started.
        targets: who is scraped, by what the label `case` says of each.
        rules: text of the file of rules; empty if there are none.
        every_s: time between two scrapes, and between two judgements of the rules.
    """

    def __init__(
        self, room: Room, targets: Mapping[str, Target], rules: str = "", every_s: float = 5.0
    ) -> None:
        folder = room.folder / "prometheus"
        folder.mkdir(exist_ok=True)
        (folder / "rules.yaml").write_text(rules)
        (folder / "prometheus.yaml").write_text(configuration(targets, every_s))
        self._address = f"{HOST}:{free_port()}"
        self.program: Program = room.start_words(
            [
                *("prometheus", "--config.file=prometheus.yaml", "--storage.tsdb.path=store"),
                *(f"--web.listen-address={self._address}", "--log.level=warn"),
            ],
            cwd=folder,
        )

    async def ready(self) -> None:
        """Wait until it answers."""
        async with asyncio.timeout(READY_S):
            while True:  # until it answers, or the time is over
                try:
                    await self.query("1")
                except aiohttp.ClientError:
                    await asyncio.sleep(LOOK_S)
                else:
                    return

    async def query(self, expression: str) -> Found:
        """Return what an expression is now; a scalar has no labels."""
        timeout = aiohttp.ClientTimeout(total=ASK_S)
        url = f"http://{self._address}/api/v1/query"
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data={"query": expression}) as answer,
        ):
            told = await answer.json()
        if told["status"] != "success":
            raise ValueError(f"{expression}: {told['error']}")
        if told["data"]["resultType"] == "scalar":
            return [({}, float(told["data"]["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in told["data"]["result"]]


def configuration(targets: Mapping[str, Target], every_s: float) -> str:
    """Return the text of Prometheus' own file: one job, which is that of docs/metrics.md."""
    jobs = [
        {
            "job_name": f"islands-{name}",
            "scheme": "http" if target.authority is None else "https",
            "tls_config": {} if target.authority is None else {"ca_file": str(target.authority)},
            "static_configs": [
                {"targets": [f"{HOST}:{target.port}"], "labels": {"case": name, "job": "islands"}}
            ],
        }
        for name, target in targets.items()
    ]
    every = f"{every_s:g}s"
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": every, "evaluation_interval": every},
            "rule_files": ["rules.yaml"],
            "scrape_configs": jobs,
        }
    )
