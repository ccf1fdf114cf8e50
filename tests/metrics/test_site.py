"""A hub's page of metrics: who may read it, and that it says what the hub counts."""

import json
from collections.abc import Iterator, Mapping

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from islands.metrics.catalogue import Sample
from islands.metrics.site import MetricsSite, Source
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret

pytestmark = pytest.mark.integration

SECRET = Secret("correct-horse-battery")


class Figures(Source):
    """Tells some figures, and whether it is ready."""

    def __init__(self) -> None:
        self.because = "not yet"

    def samples(self) -> Iterator[Sample]:
        yield Sample("islands_run_tokens_total", 2**53)
        yield Sample("islands_ready", not self.because)
        yield Sample("islands_learner_loss", float("nan"), ("ana",))
        yield Sample("islands_learner_state", 1, ("ana", "stepping"))
        yield Sample("islands_run_phase", 1, ("training",))

    def unready_because(self) -> str:
        return self.because

    def status(self) -> Mapping[str, object]:
        return {**super().status(), "tokens": 2**53, "loss": float("nan")}


async def test_a_page_is_read_on_loopback_or_with_the_token() -> None:
    network, source = WebsocketNetwork([], secret=SECRET), Figures()
    await network.open("127.0.0.1", 0)
    network.serve(MetricsSite(source, SECRET))
    base = f"http://127.0.0.1:{network.port}"
    try:
        async with aiohttp.ClientSession() as session:

            async def get(path: str, **headers: str) -> tuple[int, bytes]:
                async with session.get(base + path, headers=headers) as answer:
                    return answer.status, await answer.read()

            assert await get("/healthz") == (200, b"ok\n")
            assert await get("/readyz") == (503, b"not yet\n")
            source.because = ""
            assert (await get("/readyz"))[0] == 200
            assert (await get("/metrics", Host="evil.example"))[0] == 421
            shown = {"Host": "hub.example", "Authorization": SECRET.header()}
            assert (await get("/metrics", **shown))[0] == 200
            assert (await get("/metrics", Authorization="Bearer wrong"))[0] == 401
            async with session.post(f"{base}/metrics") as answer:
                assert answer.status == 405
            status, text = await get("/metrics")
            told = {one.name: one for one in text_string_to_metric_families(text.decode())}
            assert status == 200
            assert told["islands_run_tokens"].samples[0].value == 2**53
            assert told["islands_learner_loss"].samples[0].labels == {"learner": "ana"}
            assert told["islands_learner_state"].samples[0].labels == {
                "learner": "ana",
                "state": "stepping",
            }
            assert told["process_cpu_seconds"].samples[0].value > 0
            short = json.loads((await get("/status"))[1])
            assert short == {"unready": "", "tokens": 2**53, "loss": None}
    finally:
        await network.close()
