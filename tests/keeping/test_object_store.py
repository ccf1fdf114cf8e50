"""Checkpoints in an object store: fsspec's in memory, and S3 as a real server of its own speaks it.

The server is moto's, a process on loopback.
"""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from islands.actors.epochs import epoch_disk
from islands.cli.__main__ import main
from islands.keeping.catalogue import NOT_FINISHED, held, whole_ones
from islands.keeping.finding import AUTO, find
from islands.keeping.manifest import MANIFEST
from islands.keeping.restoring import go_back
from islands.keeping.store import ASIDE, RemoteStore, Store, store_at
from islands.keeping.verifying import faults_of_checkpoint
from islands.protocol.errors import DamagedError, DiskError
from islands.protocol.tape.process_entries import Checkpointed, CopyFailed
from islands.syncer.journal import JOURNAL, Journal
from tests.keeping.test_checkpoints import FRAGMENTS, Run, values_in

fsspec: Any = pytest.importorskip("fsspec", reason="needs fsspec")
MISSING = [each for each in ("s3fs", "moto", "flask") if find_spec(each) is None]
needs_server = pytest.mark.skipif(bool(MISSING), reason="needs the extras s3 and moto")
LOCAL = "127.0.0.1"
BUCKET = "bucket"
UPLOAD = f"/{BUCKET}/killed/1-4/fragment-00001"
"""The server holds the first upload of such a file, here the second fragment of a checkpoint."""


class Server:
    """Moto's server as a process of its own, on a free port."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        log = stack.enter_context((folder / "moto.log").open("wb"))
        command = [sys.executable, "-c", SERVE, UPLOAD]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None
        self.process, self.said = process, stack.enter_context(process.stdout)
        self.port = int(self.said.readline())
        self.url = f"http://{LOCAL}:{self.port}"
        self.settings = {
            "endpoint_url": self.url,
            "key": "known",
            "secret": "secret",
            "config_kwargs": {"retries": {"max_attempts": 0}, "read_timeout": 0.5},
        }

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Let it answer nobody, though the system accepts connections for it."""
        self.process.send_signal(signal.SIGSTOP)

    def refuse_credentials(self) -> None:
        headers = {"Content-Type": "text/plain"}
        asked = http.client.HTTPConnection(LOCAL, self.port)
        with contextlib.closing(asked):
            asked.request("POST", "/moto-api/reset-auth", b"0", headers)
            assert asked.getresponse().status == HTTPStatus.OK

    def lose_bucket(self) -> None:
        fsspec.filesystem("s3").rm(BUCKET, recursive=True)


SERVE = """
import sys
from threading import Event
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

held = []
serve = DomainDispatcherApplication(create_backend_app)

def hold_one(environ, start_response):
    path = environ["PATH_INFO"]
    if environ["REQUEST_METHOD"] == "PUT" and path.startswith(sys.argv[1]) and not held:
        held.append(path)
        environ["wsgi.input"].read(1)
        print(path, flush=True)
        Event().wait()
    return serve(environ, start_response)

server = make_server("127.0.0.1", 0, hold_one, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with contextlib.ExitStack() as stack:
        one = Server(tmp_path, stack)
        monkeypatch.setitem(fsspec.config.conf, "s3", one.settings)
        fsspec.filesystem("s3").mkdir(BUCKET)
        yield one
        fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture(params=["memory", pytest.param("s3", marks=needs_server)])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "s3":
        request.getfixturevalue("server")
    yield store_at(f"{request.param}://{BUCKET}/run")
    if request.param == "memory":
        fsspec.filesystem("memory").rm("/", recursive=True)


def run_in(folder: Path, store: Store, merges: int = 8) -> Run:
    run = Run(folder)
    run.saver.store = run.store = store  # type: ignore[assignment]  # of another class
    for number in range(run.durable.merges + 1, merges + 1):
        run.commit(number)
        run.stored()
    return run


def whole(store: Store) -> list[str]:
    return [each.name for each in whole_ones(held(store))]


def test_checkpoints_are_stored_listed_verified_and_gone_back_to(
    tmp_path: Path, store: Store
) -> None:
    run = run_in(tmp_path / "run", store)
    assert whole(store) == ["1-4", "1-6", "1-8"], "the newest three stay"
    assert all(isinstance(entry, Checkpointed) for entry in run.news)
    for name in whole(store):
        found = find(store.told(name), tmp_path)
        assert faults_of_checkpoint(found) == []
        go_back(found, tmp_path / name)
        merges = found.manifest.merges
        assert sorted(value for value, _ in values_in(tmp_path / name)) == [merges - 1, merges]
    assert main(["checkpoints", store.told("").rstrip("/"), "--json"]) == 0
    assert main(["verify", store.told("1-6")]) == 0


def test_what_came_after_is_set_aside_and_never_taken_for_the_newest(
    tmp_path: Path, store: Store
) -> None:
    run_in(tmp_path / "run", store, 5)
    run_in(tmp_path / "run", store, 9)  # restarted, so of another epoch
    assert whole(store) == ["1-4", "2-7", "2-9"]
    for again in ("first", "second"):  # the machine of the first is lost before its first merge
        go_back(find("4", tmp_path, store), tmp_path / again, stored=store)
        assert whole(store) == ["1-4"]
        assert find(AUTO, tmp_path, store).manifest.name == "1-4"
    aside = store_at(store.told(ASIDE))
    assert whole(aside) == ["2-7", "2-9"]
    assert faults_of_checkpoint(find(aside.told("2-9"), tmp_path)) == []
    run = run_in(tmp_path / "second", store, 9)
    assert not [entry for entry in run.news if isinstance(entry, CopyFailed)]
    assert whole(store) == ["1-4", "4-6", "4-8"]
    assert find(AUTO, tmp_path, store).manifest.name == "4-8"


def test_a_damaged_file_is_named(tmp_path: Path, store: Store) -> None:
    run_in(tmp_path / "run", store)
    assert isinstance(store, RemoteStore)
    files, root = fsspec.core.url_to_fs(store.told("1-8"))
    name = next(path for path in files.ls(root, detail=False) if "fragment" in path)
    data = bytearray(files.cat_file(name))
    data[-1] ^= 1
    files.pipe_file(name, bytes(data))
    (fault,) = faults_of_checkpoint(find("8", tmp_path, store))
    assert name.rpartition("/")[2] in fault
    with pytest.raises(DamagedError, match="is damaged"):
        go_back(find("8", tmp_path, store), tmp_path / "again")


@needs_server
def test_killed_while_it_uploads_it_leaves_no_manifest(tmp_path: Path, server: Server) -> None:
    store = store_at(f"s3://{BUCKET}/killed")
    child = subprocess.Popen(
        [sys.executable, "-c", TRAIN, tmp_path / "run", store.told("").rstrip("/")],
        env={
            **os.environ,
            "FSSPEC_S3_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "known",
            "AWS_SECRET_ACCESS_KEY": "secret",
        },
    )
    assert server.said.readline().decode().startswith(UPLOAD)
    child.kill()
    child.wait()
    assert held(store)["1-4"] == NOT_FINISHED
    assert find(AUTO, tmp_path, store).manifest.name == "1-2"
    run_in(tmp_path / "run", store, 6)
    assert store.names() == ["1-2", "2-6"], "the next start removes what the last one left"


TRAIN = """
import sys
from pathlib import Path
from islands.keeping.store import store_at
from tests.keeping.test_object_store import run_in
run_in(Path(sys.argv[1]), store_at(sys.argv[2]))
"""


FAULTS = {
    Server.close: "Could not connect to the endpoint URL",
    Server.stop: "Read timeout on endpoint URL",
    Server.refuse_credentials: "The AWS Access Key Id you provided does not exist in our records",
    Server.lose_bucket: "The specified bucket does not exist",
}


@needs_server
@pytest.mark.parametrize(("fault", "told"), FAULTS.items())
def test_each_fault_of_the_store_is_one_sentence_and_training_goes_on(
    tmp_path: Path, server: Server, fault: Callable[[Server], None], told: str
) -> None:
    store = store_at(f"s3://{BUCKET}/run")
    run = run_in(tmp_path / "run", store, 4)
    fault(server)
    for number in range(5, 9):
        run.commit(number)
        run.saver.close()
    assert [value for value, _ in values_in(tmp_path / "run")] == [7, 8]
    failed = [entry for entry in run.saver.news() if isinstance(entry, CopyFailed)]
    assert len(failed) == 2
    for entry in failed:
        assert entry.error.startswith(f"checkpoints at s3://{BUCKET}/run cannot be ")
        assert told in entry.error
        assert "\n" not in entry.error
    if fault is not Server.lose_bucket:
        with pytest.raises(DiskError, match=told):
            store.names()
    journal = Journal(epoch_disk(tmp_path / "run", JOURNAL), FRAGMENTS)
    assert journal.take_over() is not None


@needs_server
def test_a_store_that_goes_away_while_it_is_read_is_told(tmp_path: Path, server: Server) -> None:
    store = store_at(f"s3://{BUCKET}/run")
    run_in(tmp_path / "run", store, 2)
    found = find(AUTO, tmp_path, store)
    file = store.open("1-2", MANIFEST)
    assert file is not None
    server.close()
    with file, pytest.raises(OSError, match="Could not connect"):
        file.read()
    with pytest.raises(DiskError, match="cannot be read: Could not connect"):
        go_back(found, tmp_path / "again", stored=store)
    assert not (tmp_path / "again" / "run.json").exists()
