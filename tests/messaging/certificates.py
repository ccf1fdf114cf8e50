"""Certificates for tests, made by the `openssl` command; valid for 127.0.0.1 and localhost."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Certificates:
    """An authority, a pair for the listener, a pair for a dialler, and an authority unknown."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    stranger: Path


def make_certificates(folder: Path) -> Certificates:
    """Make them, or skip the test where there is no `openssl`."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make certificates with")
    for name in ("authority", "stranger"):
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", f"/CN=islands test {name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")),
        )
    for name in ("server", "client"):
        extensions = folder / f"{name}.cnf"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n", encoding="utf-8")
        request = folder / f"{name}.csr"
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN=islands test {name}", "-keyout", str(folder / f"{name}.key")),
            *("-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-days", "2", "-CAcreateserial"),
            *("-CA", str(folder / "authority.pem"), "-CAkey", str(folder / "authority.key")),
            *("-extfile", str(extensions), "-out", str(folder / f"{name}.pem")),
        )
    return Certificates(
        authority=folder / "authority.pem",
        server=folder / "server.pem",
        server_key=folder / "server.key",
        client=folder / "client.pem",
        client_key=folder / "client.key",
        stranger=folder / "stranger.pem",
    )


def _openssl(*arguments: str) -> None:
    subprocess.run(  # the developer's own command
        ["openssl", *arguments],  # noqa: S607
        check=True,
        capture_output=True,
    )
