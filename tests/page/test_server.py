"""The page of a run that goes on: who may see it, and what a viewer is sent."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from islands.page import server
from islands.page.server import POLICY, PROTOCOL, VIEWERS_MOST, PageSite, key_of
from islands.page.site_files import SERVED, content_of
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.protocol.tape.entry import encode_entry
from islands.protocol.tape.member_entries import StoodStill
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret
from tests.page.run_folder import LEARNERS, StoppedRun, lengthen, make_run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

TOKEN = Secret("correct-horse-battery-staple")
KEY = key_of(TOKEN)
LONG_BYTES, SLOW = 8 * 2**20, 4
BEARER = {"Authorization": TOKEN.header()}


class Hub:
    def __init__(self, folder: Path, token: Secret | None = TOKEN) -> None:
        self.told: list[str] = []
        self.network = WebsocketNetwork(MESSAGE_TYPES, secret=token, report=self.told.append)
        self.run = StoppedRun(folder)
        self.site = PageSite(self.run, token, ("hub.example",))

    @property
    def place(self) -> str:
        return f"http://127.0.0.1:{self.network.port}/page/"


@asynccontextmanager
async def hub_of(folder: Path, token: Secret | None = TOKEN) -> AsyncIterator[Hub]:
    hub = Hub(folder, token)
    await hub.network.open("127.0.0.1", 0)
    hub.network.serve(hub.site)
    try:
        yield hub
    finally:
        await hub.network.close()


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with hub_of(make_run(tmp_path / "run", 5)) as found:
        yield found


async def get(
    hub: Hub, name: str = "", headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, str, Mapping[str, str]]:
    """Status, text and headers of an answer; redirections are not followed."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, hub.place + name, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.text(), answer.headers


@asynccontextmanager
async def viewer(
    hub: Hub, key: str = KEY, headers: Mapping[str, str] | None = None
) -> AsyncIterator[ClientWebSocketResponse]:
    protocols = [PROTOCOL, key] if key else [PROTOCOL]
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(hub.place + "live", protocols=protocols, headers=headers) as socket,
    ):
        yield socket


async def entries(socket: ClientWebSocketResponse, until: str) -> list[dict[str, Any]]:
    """What a viewer is sent, up to the first message with an entry of this kind."""
    found: list[dict[str, Any]] = []
    while not any(each["kind"] == until for each in found):
        message = await socket.receive(timeout=20)
        assert message.type is WSMsgType.TEXT, message
        found += [json.loads(line) for line in message.data.split("\n")]
    return found


# --- files ------------------------------------------------------------------------------------


async def test_the_page_and_its_files_are_sent_to_anybody(hub: Hub) -> None:
    for name in ("", *SERVED):
        status, text, headers = await get(hub, name)
        assert status == 200
        assert text == content_of(name or "index.html").decode()
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert "unsafe" not in POLICY
    page = content_of("index.html").decode()
    assert "<script>" not in page
    assert "style=" not in page
    assert not hub.told


async def test_a_path_without_its_last_slash_leads_to_the_page(hub: Hub) -> None:
    status, _, headers = await get(hub, "../page")
    assert (status, headers["Location"]) == (308, "/page/")


@pytest.mark.parametrize(
    ("name", "status"),
    [
        *[("run.json", 404), ("../token", 401), ("%2e%2e/token", 401), ("..%2ftoken", 404)],
        *[("vendor/../server.py", 404), ("vendor/uPlot.LICENSE", 404), ("?key=1", 400)],
    ],
)
async def test_nothing_but_the_pages_files_is_sent(hub: Hub, name: str, status: int) -> None:
    assert (await get(hub, name))[0] == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_the_page_can_only_be_looked_at(hub: Hub, method: str) -> None:
    assert (await get(hub, "key", BEARER, method))[0] == 405


# --- who is let in ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *[("127.0.0.1:7070", 200), ("localhost:1", 200), ("[::1]:7070", 200), ("10.0.0.7", 200)],
        *[("hub.example", 200), ("HUB.example:80", 200), ("evil.example", 421), ("", 421)],
        *[("127.0.0.1.evil.example", 421), ("localhost.evil.example:7070", 421)],
    ],
)
async def test_a_name_that_is_not_this_machines_is_refused(
    hub: Hub, host: str, status: int
) -> None:
    """A site whose name leads here would else be the page's own site to a browser."""
    assert (await get(hub, "", {"Host": host}))[0] == status


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        *[(TOKEN.header(), 200), (f"Bearer {KEY}", 200), (f"Basic {KEY}", 200)],
        *[(None, 401), ("", 401), ("Bearer ", 401), (f"Bearer {KEY[:-1]}", 401)],
        *[("Bearer wrong-horse-battery-staple", 401), (f"Bearer {KEY}0", 401)],
    ],
)
async def test_the_key_is_told_to_who_has_it_or_the_token(
    hub: Hub, shown: str | None, status: int
) -> None:
    headers = {} if shown is None else {"Authorization": shown}
    found, text, _ = await get(hub, "key", headers)
    assert found == status
    assert (text == KEY) == (status == 200)
    assert KEY not in "".join(hub.told)
    assert not TOKEN.matches(KEY)


@pytest.mark.parametrize(
    ("key", "headers", "status"),
    [
        ("", {}, 401),
        ("0" * 32, {}, 401),
        (KEY, {"Origin": "http://evil.example"}, 403),
        (KEY, {"Origin": "null"}, 403),
        (KEY, {"Host": "evil.example", "Origin": "http://evil.example"}, 421),
    ],
    ids=["no key", "a wrong key", "another site", "a file", "a rebound name"],
)
async def test_a_websocket_is_opened_for_the_page_alone(
    hub: Hub, key: str, headers: dict[str, str], status: int
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        async with viewer(hub, key, headers):
            pass
    assert refusal.value.status == status
    assert hub.site.viewers == 0


async def test_a_run_without_a_token_is_shown_to_this_machine(tmp_path: Path) -> None:
    async with hub_of(make_run(tmp_path / "run", 2), token=None) as hub:
        assert hub.site.key is None
        assert (await get(hub, "key"))[:2] == (200, "")
        async with viewer(hub, "") as socket:
            assert await entries(socket, "page.figures")
        assert (await get(hub, "", {"Host": "evil.example"}))[0] == 421
        with pytest.raises(aiohttp.WSServerHandshakeError):
            async with viewer(hub, "", {"Origin": "http://evil.example"}):
                pass


async def test_learners_are_not_in_the_pages_way(hub: Hub) -> None:
    hub.network.listen("far")
    near = await hub.network.dial(hub.network.url("far"), local="near")
    near.close("done")
    async with aiohttp.ClientSession() as session:
        async with session.get(hub.place.removesuffix("page/")) as answer:
            assert await answer.text() == "islands hub\n"
        async with session.get(hub.place.replace("page/", "pages")) as answer:
            assert answer.status == 401


# --- what a viewer is sent --------------------------------------------------------------------


async def test_a_viewer_is_sent_the_run_so_far_and_then_what_comes(hub: Hub) -> None:
    async with viewer(hub, headers={"Origin": hub.place.removesuffix("/page/")}) as socket:
        assert socket.protocol == PROTOCOL
        first = await entries(socket, "page.figures")
        assert [each["kind"] for each in first[:2]] == ["page.run", "page.curves"]
        assert [each["kind"] for each in first].count("merged") == 5
        assert {row["name"] for row in first[-1]["learners"]} == set(LEARNERS)
        with (hub.run.folder / "tape.jsonl").open("ab") as tape:
            tape.write(encode_entry(50.0, "supervisor", StoodStill(1.5)) + b"\n")
        later = await entries(socket, "stood_still")
        assert [each["gap_s"] for each in later if each["kind"] == "stood_still"] == [1.5]


async def test_nothing_is_computed_while_nobody_looks_and_once_for_all(hub: Hub) -> None:
    await get(hub)
    assert hub.run.asked == 0
    async with viewer(hub) as one, viewer(hub) as two, viewer(hub) as three:
        for socket in (one, two, three):
            await entries(socket, "page.figures")
        assert hub.site.viewers == 3
        assert hub.run.asked <= 2


async def test_viewers_are_bounded_in_number(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "VIEWERS_MOST", 2)
    assert VIEWERS_MOST > 2
    async with viewer(hub) as first, viewer(hub) as second:
        await entries(first, "page.figures")
        await entries(second, "page.figures")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            async with viewer(hub):
                pass
        assert refusal.value.status == 503
        await second.close()
        while hub.site.viewers > 1:  # noqa: ASYNC110  nobody tells when a viewer has gone
            await asyncio.sleep(0)
        async with viewer(hub) as third:
            assert await entries(third, "page.figures")


async def test_what_a_viewer_sends_ends_its_websocket(hub: Hub) -> None:
    async with viewer(hub) as socket:
        await entries(socket, "page.figures")
        await socket.send_str('{"kind":"Command","verb":"stop"}')
        while (await socket.receive(timeout=20)).type is WSMsgType.TEXT:
            pass
        assert socket.closed


async def test_messages_are_bounded_and_hold_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CHUNK_BYTES", 2000)
    async with hub_of(make_run(tmp_path / "run", 50)) as hub, viewer(hub) as socket:
        sizes = []
        while True:
            message = await socket.receive(timeout=20)
            sizes.append(len(message.data))
            kinds = [json.loads(line)["kind"] for line in message.data.split("\n")]
            if "page.figures" in kinds:
                break
        longest = max(len(line) for line in message.data.split("\n"))
        assert max(sizes) < 2000 + max(longest, 20_000)
        assert len(sizes) > 10


async def test_a_viewer_that_reads_nothing_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "NEWEST_BYTES", 2**26)
    folder = make_run(tmp_path / "run", 5)
    lengthen(folder, LONG_BYTES)
    async with hub_of(folder) as hub, aiohttp.ClientSession() as session:
        with monkeypatch.context() as soon:
            soon.setattr(server, "SEND_S", 0.2)
            slow = await session.ws_connect(hub.place + "live", protocols=[PROTOCOL, KEY])
            slow._response.connection.transport.pause_reading()  # type: ignore[union-attr]  # noqa: SLF001
            assert (await get(hub))[0] == 200
            while hub.site.viewers:  # noqa: ASYNC110  nobody tells when it is closed
                await asyncio.sleep(0.01)
        async with viewer(hub) as quick:
            assert await entries(quick, "page.figures")


async def test_the_end_of_a_hub_waits_for_no_viewer(hub: Hub) -> None:
    async with viewer(hub) as socket:
        await entries(socket, "page.figures")
        async with asyncio.timeout(2 * server.INTERVAL_S + 1.0):
            await hub.network.close()
        while (message := await socket.receive(timeout=20)).type is WSMsgType.TEXT:
            pass
        assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED)


class Stuck:
    """A viewer's websocket that takes one message and no more."""

    def __init__(self) -> None:
        self.taken = 0
        self.full = asyncio.Event()

    async def send_str(self, text: str) -> None:
        self.taken += len(text)
        self.full.set()
        await asyncio.Event().wait()


async def test_what_a_slow_viewer_has_not_read_waits_on_the_disk(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 5)
    lengthen(folder, LONG_BYTES)
    site = PageSite(StoppedRun(folder), None)
    viewers = [Stuck() for _ in range(SLOW)]
    visit = cast("Any", SimpleNamespace(ending=asyncio.Event()))
    tracemalloc.start()
    try:
        follow = site._follow  # noqa: SLF001  a socket's own buffers would be counted as well
        tasks = [asyncio.create_task(follow(cast("Any", viewer), visit)) for viewer in viewers]
        await asyncio.gather(*(viewer.full.wait() for viewer in viewers))
        gc.collect()
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert [viewer.taken > server.CHUNK_BYTES / 2 for viewer in viewers] == [True] * SLOW
    assert most > LONG_BYTES / 2
    assert held < SLOW * 4 * server.CHUNK_BYTES < LONG_BYTES


async def test_a_file_is_sent_packed_or_not_at_all(hub: Hub) -> None:
    assert (await get(hub, headers={"Accept-Encoding": "identity"}))[0] == 406
    assert (await get(hub))[2]["Content-Encoding"] == "gzip"
