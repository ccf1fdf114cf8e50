"""How fast a fragment travels between two processes, next to less careful ways in the same run.

    python -m tests.benchmarks.link [--repetitions 7] [--sizes-mib 1 8 64] [--loop uvloop] [--plain]

Figures are GB/s of payload, up (from the dialler) and down (to it), medians over repetitions in
which all ways take turns, so that a noisy neighbour disturbs them alike.

* **link**: envelopes with a payload over a `WebsocketLink`: checksums, limits, marks and echoes,
  assembled into pooled buffers.
* **bare**: the same bytes in messages of the same size over one aiohttp websocket, copied into a
  buffer that was allocated before; no checks, no pace.
* **socket**: one blocking socket, `sendall` and `recv_into`.

On shared cores the wall clock tells as much about the neighbours as about the link. So the last
columns say what each way would reach with a core for either side: bytes by the processor time of
the side that is busier.

`--json FILE` writes the figures as well.
"""

import argparse
import asyncio
import json
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import uvloop
from aiohttp import web

from messaging.actors.scope import Scope
from messaging.envelope import Envelope, message
from messaging.errors import LinkClosed
from messaging.links.link import Lane, Link
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import client_tls, server_tls
from messaging.websocket.settings import WebsocketSettings
from tests.messaging.certificates import Certificates, make_certificates

MIB = 2**20
HOST = "127.0.0.1"
REQUEST_BYTES = 128
BATCH_MIB = 128
"""At least so much is moved per measurement, in as many fragments as it takes."""


@message
class Move:
    """Asks for a movement: `count` payloads of `size` bytes, down if they are to be sent back."""

    count: int
    size: int
    down: bool


@message
class Fragment:
    """Carries a payload."""


@message
class Done:
    """Says that everything arrived."""


TYPES = (Move, Fragment, Done)


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one size and direction."""

    tls: bool
    size_mib: int
    direction: str
    link: float
    bare: float
    socket: float
    link_by_processor: float
    bare_by_processor: float
    socket_by_processor: float


Mover = Callable[[Move], Awaitable[None]]


def payload_of(size: int) -> memoryview:
    """Bytes to send; touched, so that no page fault is measured."""
    return memoryview(bytes(range(256)) * (size // 256))


async def send_fragments(link: Link, move: Move) -> None:
    """Send as many fragments as the queue takes at a time."""
    envelope = Envelope("a", "b", 1, Fragment(), payload=(payload_of(move.size),))
    for _ in range(move.count):
        while not link.send(envelope, Lane.BULK):  # noqa: ASYNC110 (a full queue tells nobody)
            await asyncio.sleep(0.001)


async def receive_fragments(link: Link, move: Move) -> None:
    """Take them in; each buffer is free again before the next."""
    for _ in range(move.count):
        envelope = await link.receive()
        assert envelope.payload[0].nbytes == move.size


# ---------------------------------------------------------------------------- the other process


async def serve_link(network: WebsocketNetwork, scope: Scope) -> None:
    listener = network.listen("bench")
    while True:  # until cancelled
        scope.spawn(serve_session(await listener.accept()), "session")


async def serve_session(link: Link) -> None:
    """Answer moves until the dialler is gone."""
    try:
        while True:  # until the link is closed
            move = (await link.receive()).body
            assert isinstance(move, Move)
            if move.down:
                await send_fragments(link, move)
            else:
                await receive_fragments(link, move)
                link.send(Envelope("b", "a", 1, Done()))
    except LinkClosed:
        return


def bare_handler(chunk: int) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """A websocket handler that does what `serve_session` does, with nothing around it."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        websocket = web.WebSocketResponse(compress=False, max_msg_size=2 * MIB)
        await websocket.prepare(request)
        async for asked in websocket:
            move = Move(**json.loads(asked.data))
            if move.down:
                await send_bare(websocket, move, chunk)
            else:
                await receive_bare(websocket, move)
                await websocket.send_str("done")
        return websocket

    return handle


BareSocket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def send_bare(websocket: BareSocket, move: Move, chunk: int) -> None:
    """Send the bytes in messages of `chunk`."""
    data = payload_of(move.size)
    for _ in range(move.count):
        for offset in range(0, move.size, chunk):
            await websocket.send_bytes(data[offset : offset + chunk])  # type: ignore[arg-type]


async def receive_bare(websocket: BareSocket, move: Move) -> None:
    buffer = memoryview(bytearray(move.size))
    for _ in range(move.count):
        offset = 0
        while offset < move.size:
            data = (await websocket.receive()).data
            buffer[offset : offset + len(data)] = data
            offset += len(data)


def serve_blocking(listener: socket.socket, tls: ssl.SSLContext | None) -> None:
    """Answer moves on one connection after the other; a thread of its own."""
    while True:  # until the process ends
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            connection = tls.wrap_socket(connection, server_side=True)
        with connection:
            while request := connection.recv(REQUEST_BYTES, socket.MSG_WAITALL * (tls is None)):
                move = Move(**json.loads(request))
                if move.down:
                    send_blocking(connection, move)
                else:
                    receive_blocking(connection, move)
                    connection.sendall(b"!")


def send_blocking(connection: socket.socket, move: Move) -> None:
    data = payload_of(move.size)
    for _ in range(move.count):
        connection.sendall(data)


def receive_blocking(connection: socket.socket, move: Move) -> None:
    buffer = memoryview(bytearray(move.size))
    for _ in range(move.count):
        offset = 0
        while offset < move.size:
            offset += connection.recv_into(buffer[offset:])


async def serve(options: argparse.Namespace) -> None:
    """Listen in all ways, tell the ports, and work until standard input ends."""
    folder = Path(options.serve)
    ports: dict[str, int] = {}
    async with Scope() as scope:
        for name in ("plain", "tls"):
            tls = None
            if name == "tls":
                tls = server_tls(folder / "server.pem", folder / "server.key")
            network = WebsocketNetwork(TYPES, settings=settings(options), server_tls=tls)
            await network.open(HOST, 0)
            scope.spawn(serve_link(network, scope), "link")
            bare = await asyncio.get_running_loop().create_server(
                web.Server(bare_handler(options.chunk_kib << 10)), HOST, 0, ssl=tls
            )
            listener = socket.create_server((HOST, 0))
            threading.Thread(target=serve_blocking, args=(listener, tls), daemon=True).start()
            ports[f"link-{name}"] = network.port
            ports[f"bare-{name}"] = bare.sockets[0].getsockname()[1]
            ports[f"socket-{name}"] = listener.getsockname()[1]
        print(json.dumps(ports), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


# ----------------------------------------------------------------------------- the measuring one


def settings(options: argparse.Namespace) -> WebsocketSettings:
    return WebsocketSettings(
        chunk_bytes=options.chunk_kib << 10,
        inbox_bytes=1 << 28,
    )


async def open_link(network: WebsocketNetwork, address: str) -> Mover:
    link = await network.dial(address, local="measuring")

    async def move_it(move: Move) -> None:
        link.send(Envelope("a", "b", 1, move))
        if move.down:
            await receive_fragments(link, move)
        else:
            await send_fragments(link, move)
            assert isinstance((await link.receive()).body, Done)

    return move_it


async def open_bare(session: aiohttp.ClientSession, url: str, chunk: int) -> Mover:
    websocket = await session.ws_connect(url, max_msg_size=2 * MIB)

    async def move_it(move: Move) -> None:
        await websocket.send_str(json.dumps(asdict(move)))
        if move.down:
            await receive_bare(websocket, move)
        else:
            await send_bare(websocket, move, chunk)
            assert (await websocket.receive()).data == "done"

    return move_it


def open_blocking(port: int, tls: ssl.SSLContext | None) -> Mover:
    """A mover over a blocking socket; it holds the loop, which has nothing else to do."""
    connection = socket.create_connection((HOST, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is not None:
        connection = tls.wrap_socket(connection, server_hostname=HOST)

    async def move_it(move: Move) -> None:
        connection.sendall(json.dumps(asdict(move)).encode().ljust(REQUEST_BYTES))
        if move.down:
            receive_blocking(connection, move)
        else:
            send_blocking(connection, move)
            assert connection.recv(1) == b"!"

    return move_it


async def measure(options: argparse.Namespace, certificates: Certificates) -> list[Row]:
    """Measure every way at every size, taking turns."""
    command = [sys.executable, "-m", "tests.benchmarks.link", *sys.argv[1:]]
    child = subprocess.Popen(  # noqa: ASYNC220 (it starts before anything is measured)
        [*command, "--serve", str(certificates.server.parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    ports = json.loads(child.stdout.readline())
    tls = client_tls(certificates.authority)
    network = WebsocketNetwork(TYPES, settings=settings(options), client_tls=tls)
    rows = []
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls), timeout=aiohttp.ClientTimeout(total=None)
    ) as session:
        for name in ("plain",) if options.plain else ("plain", "tls"):
            s = "s" if name == "tls" else ""
            ways = {
                "link": await open_link(network, f"ws{s}://{HOST}:{ports[f'link-{name}']}/bench"),
                "bare": await open_bare(
                    session,
                    f"http{s}://{HOST}:{ports[f'bare-{name}']}/",
                    options.chunk_kib << 10,
                ),
                "socket": open_blocking(ports[f"socket-{name}"], tls if s else None),
            }
            rows += await measure_ways(options, ways, child.pid, tls=bool(s))
    await network.close()
    child.stdin.close()
    child.wait()
    return rows


async def measure_ways(
    options: argparse.Namespace, ways: dict[str, Mover], child: int, *, tls: bool
) -> list[Row]:
    """Measure the ways in turn; the first round warms up and does not count."""
    rows = []
    for size_mib in options.sizes_mib:
        count = max(1, BATCH_MIB // size_mib)
        for down in (False, True):
            move = Move(count, size_mib * MIB, down)
            took_s: dict[str, list[float]] = {name: [] for name in ways}
            used_s: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(options.repetitions + 1):
                for name, mover in ways.items():
                    started_s, before_s = time.perf_counter(), processor_s(child)
                    await mover(move)
                    took_s[name].append(time.perf_counter() - started_s)
                    after_s = processor_s(child)
                    used_s[name].append(max(b - a for a, b in zip(before_s, after_s, strict=True)))
            total = count * size_mib * MIB / 1e9
            figures = {n: total / statistics.median(times[1:]) for n, times in took_s.items()}
            figures |= {
                f"{n}_by_processor": total / statistics.median(times[1:])
                for n, times in used_s.items()
            }
            row = Row(tls, size_mib, "down" if down else "up", **figures)
            print_row(row)
            rows.append(row)
    return rows


def processor_s(child: int) -> tuple[float, float]:
    """Processor time that this process and its child have used; Linux numbers clocks so."""
    return time.process_time(), time.clock_gettime((~child << 3) | 2)


def print_row(row: Row) -> None:
    print(
        f"{'tls' if row.tls else 'plain':>5} {row.size_mib:>4} MiB {row.direction:>5}"
        f"{row.link:>8.2f}{row.bare:>8.2f}{row.socket:>8.2f}"
        f"{row.link / row.bare:>11.2f}{row.link / row.socket:>13.2f}"
        f"{row.link_by_processor:>12.2f}{row.bare_by_processor:>8.2f}"
        f"{row.socket_by_processor:>8.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of a link between two processes.")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--sizes-mib", type=int, nargs="*", default=(1, 8, 64))
    parser.add_argument("--chunk-kib", type=int, default=WebsocketSettings().chunk_bytes >> 10)
    parser.add_argument("--plain", action="store_true", help="leave TLS out")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    factory = uvloop.new_event_loop if options.loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        if options.serve:
            runner.run(serve(options))
            return
        print(f"GB/s, two processes, {options.loop}, chunks of {options.chunk_kib} KiB")
        print(
            "       size   way    link    bare  socket  link/bare  link/socket"
            "   by processor: link, bare, socket"
        )
        with tempfile.TemporaryDirectory() as folder:
            rows = runner.run(measure(options, make_certificates(Path(folder))))
    if options.json:
        text = json.dumps([asdict(row) for row in rows], indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
