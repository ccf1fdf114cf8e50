"""A small API server of Kubernetes in memory, on loopback: what the engine asks of one.

It keeps JobSets, pods, events and Secrets of one namespace, refuses what is invalid by the vendored
schemas, pages its lists, and deletes what belongs to an object that is deleted once its pods are
gone. It has no controllers: a test makes the pods, and moves them on.
"""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.engines.schema import faults

NAMESPACE = "training"
KINDS = {
    f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets": "jobsets",
    f"/api/v1/namespaces/{NAMESPACE}/pods": "pods",
    f"/api/v1/namespaces/{NAMESPACE}/events": "events",
    f"/api/v1/namespaces/{NAMESPACE}/secrets": "secrets",
}
API_VERSIONS = {"secrets": ("v1", "Secret")}
REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    409: "AlreadyExists",
    422: "Invalid",
}
NOW = "2026-11-25T12:00:00Z"
Object = dict[str, Any]
Answer = tuple[int, Object]


class KubernetesApi:
    """The server's objects.

    Attributes:
        objects: By kind, then by name.
        asked: Each request: its method, its kind, and its query.
        refuses: What it answers to the requests of a kind instead: a status, and a message.
        page: Most objects in one answer, whatever is asked for.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS.values()}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.refuses: dict[str, tuple[int, str]] = {}
        self.page = 500

    # --- for tests ----------------------------------------------------------------------------

    def add_pod(self, jobset: str, index: int, phase: str, **status: object) -> Object:
        spec = self.objects["jobsets"][jobset]["spec"]["replicatedJobs"][0]["template"]["spec"]
        labels = {
            **spec["template"]["metadata"]["labels"],
            "jobset.sigs.k8s.io/jobset-name": jobset,
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        name = f"{jobset}-hosts-0-{index}-{uuid.uuid4().hex[:5]}"
        pod: Object = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": f"node-{index}"},
            "status": {"phase": phase, **status},
        }
        self.objects["pods"][name] = pod
        return pod

    def end_pods(self, jobset: str) -> None:
        """Let a JobSet's pods end, as after their time of grace."""
        pods = self.objects["pods"]
        for name in [name for name in pods if name.startswith(f"{jobset}-hosts-")]:
            del pods[name]
        self._collect()

    def forget_pod(self, name: str) -> None:
        self.objects["pods"].pop(name, None)
        self._collect()

    # --- requests -----------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, str], body: Object) -> Answer:
        place = next((place for place in KINDS if f"{path}/".startswith(f"{place}/")), None)
        if place is None:
            return _status(404, "the server could not find the requested resource")
        kind, name = KINDS[place], path.removeprefix(place).strip("/")
        self.asked.append((method, kind, query))
        if kind in self.refuses:
            return _status(*self.refuses[kind])
        match method, name:
            case "GET", "":
                return self._list(kind, query)
            case "GET", _:
                found = self.objects[kind].get(name)
                return (200, found) if found else _status(404, f'{kind} "{name}" not found')
            case "POST", "":
                return self._create(kind, query, body)
            case "DELETE", "":
                for each in self._selected(kind, query):
                    del self.objects[kind][each["metadata"]["name"]]
                self._collect()
                return _status(200, "")
            case "DELETE", _:
                return self._delete(kind, name)
        return _status(405, f"{method} is not known here")

    def _list(self, kind: str, query: Mapping[str, str]) -> Answer:
        found, first = self._selected(kind, query), int(query.get("continue", 0))
        last = first + min(self.page, int(query.get("limit", 500)))
        about = {"continue": str(last)} if last < len(found) else {}
        return 200, {"items": found[first:last], "metadata": about}

    def _selected(self, kind: str, query: Mapping[str, str]) -> list[Object]:
        wanted = _pairs(query.get("labelSelector", "")).items()
        fields = _pairs(query.get("fieldSelector", "")).items()
        return [
            each
            for each in self.objects[kind].values()
            if each["metadata"].get("labels", {}).items() >= wanted and each.items() >= fields
        ]

    def _create(self, kind: str, query: Mapping[str, str], body: Object) -> Answer:
        if kind in API_VERSIONS:
            version, named = API_VERSIONS[kind]
            body = {"apiVersion": version, "kind": named, **body}
        elif query.get("fieldValidation") != "Strict":
            return _status(400, "this server is asked to be strict")
        wrong = faults(body)
        if wrong:
            return _status(400, f"strict decoding error: {wrong[0]}")
        name = body["metadata"]["name"]
        if name in self.objects[kind]:
            return _status(409, f'{kind} "{name}" already exists')
        body["metadata"]["uid"] = str(uuid.uuid4())
        self.objects[kind][name] = body
        return 201, body

    def _delete(self, kind: str, name: str) -> Answer:
        if name not in self.objects[kind]:
            return _status(404, f'{kind} "{name}" not found')
        self.objects[kind][name]["metadata"]["deletionTimestamp"] = NOW
        self._collect()
        return _status(200, "")

    def _collect(self) -> None:
        """Forget JobSets that are deleted and have no pods, then what belonged to them."""
        pods = [each["metadata"]["labels"] for each in self.objects["pods"].values()]
        having = {labels["jobset.sigs.k8s.io/jobset-name"] for labels in pods}
        jobsets = self.objects["jobsets"]
        for name in [name for name in jobsets if name not in having]:
            if "deletionTimestamp" in jobsets[name]["metadata"]:
                del jobsets[name]
        living = {each["metadata"]["uid"] for each in jobsets.values()}
        for name, secret in list(self.objects["secrets"].items()):
            owners = secret["metadata"].get("ownerReferences", [])
            if owners and not living & {owner["uid"] for owner in owners}:
                del self.objects["secrets"][name]


def _pairs(text: str) -> dict[str, str]:
    return dict(each.split("=", 1) for each in text.split(",") if each)


def _status(code: int, message: str) -> Answer:
    told = {"status": "Failure", "code": code, "reason": REASONS.get(code, ""), "message": message}
    return code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, **told}


@contextmanager
def served(api: KubernetesApi, folder: Path) -> Iterator[Path]:
    """Serve an API on loopback while the block runs; yield the kubeconfig that leads to it."""

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            body = json.loads(self.body() or b"{}")
            code, told = api.answer(self.command, parts.path, query, body)
            content = json.dumps(told).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            return body

        do_GET = do_POST = do_DELETE = do  # noqa: N815  (names of http.server)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    file = folder / "kubeconfig"
    address = f"http://127.0.0.1:{server.server_port}"
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": address}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "here", "user": "me", "namespace": NAMESPACE}}
        ],
    }
    file.write_text(yaml.safe_dump(told))
    try:
        yield file
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
