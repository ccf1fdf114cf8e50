"""Secrets do not show, mistakes in files read as sentences, and refusals cannot flood a log."""

import pickle  # noqa: TID251  what must not be possible
from pathlib import Path

import pytest

from messaging.errors import LocalFault
from messaging.websocket import security
from tests.messaging.certificates import Certificates

VALUE = "correct-horse-battery"


def test_secret_does_not_show() -> None:
    secret = security.Secret(VALUE)
    assert VALUE not in f"{secret} {secret!r}"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(secret)


def test_secret_matches_itself_alone() -> None:
    secret = security.Secret(VALUE)
    assert secret.matches(VALUE)
    assert not any(map(secret.matches, (None, "", VALUE[:-1], VALUE + "x", "ü" * 20)))
    assert secret.admits(secret.header())
    assert secret.admits(f"bearer {VALUE}")
    assert not any(map(secret.admits, (None, VALUE, f"Basic {VALUE}", "Bearer ", "Bearer  x")))


def test_generated_secrets_differ() -> None:
    assert not security.Secret.generate().admits(security.Secret.generate().header())


def test_secret_is_written_for_its_owner_alone_and_read_back(tmp_path: Path) -> None:
    secret = security.Secret.generate()
    secret.write(tmp_path / "token")
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    again = security.Secret.read(tmp_path / "token")
    assert again.admits(secret.header())
    assert again.warning is None
    with pytest.raises(LocalFault, match="cannot be written"):
        secret.write(tmp_path / "token")


def test_secret_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(VALUE, encoding="utf-8")
    path.chmod(0o644)
    assert f"chmod 600 {path}" in (security.Secret.read(path).warning or "")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no secret at"),
        (b"short\n", "has 5 characters"),
        (b"two words are no secret\n", "spaces"),
        (b"\xff\xfe" * 20, "cannot be read"),
        (b"x" * 5000, "5000 characters"),
    ],
    ids=["missing", "short", "spaces", "binary", "long"],
)
def test_bad_secret_file_is_a_sentence(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LocalFault, match=says) as caught:
        security.Secret.read(path)
    assert str(path) in str(caught.value)
    assert "short" not in str(caught.value)


def test_secret_from_the_environment() -> None:
    assert security.Secret.from_env("TOKEN", {}) is None
    secret = security.Secret.from_env("TOKEN", {"TOKEN": VALUE})
    assert secret is not None
    assert secret.matches(VALUE)
    with pytest.raises(LocalFault, match="the variable TOKEN"):
        security.Secret.from_env("TOKEN", {"TOKEN": "x"})


def test_bad_files_are_sentences(certificates: Certificates, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    text = tmp_path / "text.pem"
    text.write_text("no certificate", encoding="utf-8")
    with pytest.raises(LocalFault, match=r"certificate .*nothing\.pem cannot be read"):
        security.server_tls(nothing, certificates.server_key)
    with pytest.raises(LocalFault, match="do not belong together"):
        security.server_tls(certificates.server, certificates.client_key)
    with pytest.raises(LocalFault, match="holds no certificate authority"):
        security.client_tls(text)
    with pytest.raises(LocalFault, match="needs its key"):
        security.client_tls(None, certificates.client)


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 (it is only asked about)
        ("::", False),
        ("", False),
        ("192.0.2.7", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, *, alone: bool) -> None:
    assert security.only_loopback(host) is alone


@pytest.mark.parametrize(
    ("header", "named", "by_address"),
    [
        *[("localhost", True, True), ("LOCALHOST:7070", True, True), ("127.0.0.1:1", True, True)],
        *[("[::1]:7070", True, True), ("hub.example:7070", True, True), ("192.0.2.7", False, True)],
        *[("[2001:db8::7]:7070", False, True), ("evil.example", False, False), ("", False, False)],
        *[("hub.example.evil", False, False), ("127.0.0.1.evil", False, False)],
        *[("[::1", False, False), ("localhost@evil.example", False, False)],
    ],
)
def test_a_browser_reaches_this_machine_by_its_own_names(
    header: str, *, named: bool, by_address: bool
) -> None:
    assert security.is_named(header, ["hub.example"]) is named
    assert security.is_named(header, ["hub.example"], by_address=True) is by_address


def test_refusals_are_reported_so_many_per_second_and_address() -> None:
    reports: list[str] = []
    report = security.RefusalReport(reports.append, per_s=10)
    for _ in range(1000):
        report.refused("192.0.2.1", "a wrong secret", now_s=5.0)
    assert len(reports) == 10
    report.refused("192.0.2.2", "a wrong secret", now_s=5.5)
    assert "990 more refusals were left out" in reports[-1]
    report.refused("192.0.2.1", "a wrong secret", now_s=6.1)
    assert len(reports) == 12
    assert report.left_out == 0


def test_refusals_remember_few_addresses() -> None:
    report = security.RefusalReport(lambda _: None, per_s=10)
    for number in range(3 * security.ADDRESSES_REMEMBERED):
        report.refused(str(number), "a wrong secret", now_s=5.0)
    assert len(report._seen) == security.ADDRESSES_REMEMBERED  # noqa: SLF001
