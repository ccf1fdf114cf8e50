"""Authentication: a shared secret, and TLS contexts that explain wrong files in a sentence.

The secret travels in the `Authorization` header of each websocket's opening request, never in a
URL, because URLs end up in logs. It is compared in constant time, and no text shows it.
"""

import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import ssl
import stat
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from messaging.errors import LocalFault
from messaging.plain_text import plain

SECRET_CHARACTERS_MIN = 16
SECRET_CHARACTERS_MAX = 4096
GENERATED_BYTES = 32
ADDRESSES_REMEMBERED = 1024

Judge = Callable[[str], object | None]
"""Returns who holds a token that is not the shared secret, or, as a text, the sentence that refuses
it; None if it knows no such token."""


class Secret:
    """A shared secret of visible ASCII characters, whose `repr` does not show it.

    Attributes:
        warning: Why the file that it came from is unsafe; None if it is not.
    """

    another = "a wrong secret"
    """What any other secret is called."""

    def __init__(self, value: str, *, source: str = "the secret") -> None:
        """Hold a secret; error messages name its source."""
        self.warning: str | None = None
        self._value = value
        if not SECRET_CHARACTERS_MIN <= len(value) <= SECRET_CHARACTERS_MAX:
            raise LocalFault(
                f"{source} has {len(value)} characters; it needs {SECRET_CHARACTERS_MIN} to "
                f"{SECRET_CHARACTERS_MAX}, such as a random token of 32 bytes has in base64"
            )
        if not all("!" <= character <= "~" for character in value):
            raise LocalFault(
                f"{source} holds spaces or characters beyond ASCII, which no header can carry"
            )

    def __repr__(self) -> str:
        return "Secret(not shown)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")

    @classmethod
    def generate(cls) -> Self:
        return cls(secrets.token_urlsafe(GENERATED_BYTES))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a secret from a file that holds nothing else."""
        try:
            text = path.read_text(encoding="utf-8")
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError as error:
            raise LocalFault(
                f"there is no secret at {path}: copy the file from the host of the hub"
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise LocalFault(f"the secret at {path} cannot be read: {error}") from error
        secret = cls(text.strip(), source=f"the secret at {path}")
        if mode & 0o077:
            secret.warning = f"others can read the secret at {path}: run chmod 600 {path}"
        return secret

    @classmethod
    def from_env(cls, name: str, environment: Mapping[str, str]) -> Self | None:
        """Return the secret in an environment variable; None if the variable is not set."""
        value = environment.get(name)
        return None if value is None else cls(value.strip(), source=f"the variable {name}")

    def write(self, path: Path) -> None:
        """Write the secret to a new file that only its owner can read."""
        try:
            if path.exists():
                raise FileExistsError(f"{path} is there already")
            fresh = path.with_name(path.name + ".new")  # so that a crash leaves no half secret
            fresh.unlink(missing_ok=True)
            fresh.touch(mode=0o600)
            fresh.write_text(self._value + "\n", encoding="utf-8")
            _flush(fresh)
            fresh.replace(path)
            _flush(path.parent)  # or a power loss takes the name back, and the secret with it
        except OSError as error:
            raise LocalFault(f"the secret cannot be written to {path}: {error}") from error

    def header(self, address: str = "") -> str:
        """Return the `Authorization` header's value; it holds the secret, so never print it."""
        return f"Bearer {self._value}"

    def host(self, address: str) -> None:
        return  # whoever has a shared secret is dialled where its address says

    def matches(self, candidate: str | None) -> bool:
        shown = (candidate or "").encode("utf-8", "surrogatepass")  # a header may hold any bytes
        return hmac.compare_digest(shown, self._value.encode())

    def admits(self, header: str | None) -> bool:
        """Whether the value of an `Authorization` header holds the secret."""
        kind, _, value = (header or "").partition(" ")
        return self.matches(value) and kind.lower() == "bearer"


class Keyring:
    """Secrets of pairs, where this process shares another one with each of its peers.

    A peer is dialled at the host that is known of it, whatever host its address names: that one
    only has to be in its certificate.
    """

    another = "a secret that is not known here, or not yet,"

    def __init__(self) -> None:
        """Show nothing, and accept nobody."""
        self._shown: dict[str, tuple[str, str | None]] = {}
        self._accepted: dict[bytes, None] = {}

    def __repr__(self) -> str:
        return "Keyring(not shown)"

    def show(self, address: str, secret: str, host: str | None) -> None:
        """Show a secret at an address, which is dialled at this host; None: at its own."""
        self._shown[address] = secret, host
        if len(self._shown) > ADDRESSES_REMEMBERED:
            del self._shown[next(iter(self._shown))]

    def accept(self, secrets_: Iterable[str]) -> None:
        self._accepted = dict.fromkeys(_digest(one) for one in secrets_ if one)

    def header(self, address: str) -> str | None:
        """Return the `Authorization` header's value for an address; None if it is not known."""
        known = self._shown.get(address)
        return None if known is None else f"Bearer {known[0]}"

    def host(self, address: str) -> str | None:
        """Return the host at which an address is dialled; None: the one that it names."""
        known = self._shown.get(address)
        return None if known is None else known[1]

    def admits(self, header: str | None) -> bool:
        kind, _, value = (header or "").partition(" ")
        return _digest(value) in self._accepted and kind.lower() == "bearer"


def token_in(header: str | None) -> str:
    """Return the token in the value of an `Authorization` header; empty if there is none."""
    kind, _, value = (header or "").partition(" ")
    return value if kind.lower() == "bearer" else ""


def _digest(secret: str) -> bytes:
    """Return what is compared of a secret, so that the time of the comparison reveals nothing."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def server_tls(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Make the context of a listener; peers must show a certificate of `client_ca`, if given.

    The certificate's file holds all intermediate certificates too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_pair(context, certificate, key)
    if client_ca is not None:
        _load_authority(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_tls(
    ca: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Make the context of a dialler; without `ca`, it trusts the authorities of the system.

    Its own certificate and key are for listeners that demand one.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        _load_authority(context, ca)
    if (certificate is None) != (key is None):
        raise LocalFault("a client certificate needs its key, and a key its certificate")
    if certificate is not None and key is not None:
        _load_pair(context, certificate, key)
    return context


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for name, path in (("certificate", certificate), ("key", key)):
        _readable(name, path)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise LocalFault(
            f"the certificate {certificate} and the key {key} do not belong together, or one of "
            f"them is no PEM file: {error}"
        ) from error


def _load_authority(context: ssl.SSLContext, path: Path) -> None:
    _readable("certificate authority", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise LocalFault(f"{path} holds no certificate authority as PEM: {error}") from error


def _readable(name: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise LocalFault(f"the {name} {path} cannot be read: {error.strerror}") from error


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _no_password() -> str:
    raise ValueError("the key is encrypted; a process that starts by itself needs a plain one")


def only_loopback(host: str) -> bool:
    """Whether all addresses of `host` can be reached from this machine alone."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)} if host else {"::"}
    except OSError as error:
        raise LocalFault(f"the address {host!r} is not known here: {error.strerror}") from error
    return all(ipaddress.ip_address(str(one).split("%")[0]).is_loopback for one in found)


def is_named(header: str, names: Collection[str], *, by_address: bool = False) -> bool:
    """Whether a `Host` header names this machine, so that a browser takes it for no other site.

    Names of loopback always do, and `names`, in lower case. If it may be named `by_address`, any
    address does: no site of elsewhere can have one as a name.
    """
    try:
        host = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host in names:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return by_address or address.is_loopback


class RefusalReport:
    """Reports refused peers, with a rate limit per address: at most `per_s` sentences a second.

    It counts the refusals that it leaves out, and adds the count to the next sentence. It
    remembers only the latest addresses.
    """

    def __init__(self, report: Callable[[str], None], per_s: int) -> None:
        self._report = report
        self._per_s = per_s
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self.left_out = 0  # since the last one that was reported

    def refused(self, address: str, sentence: str, now_s: float) -> None:
        """Report a refusal, unless its address has reached the limit of this second."""
        began_s, count = self._seen.pop(address, (now_s, 0))
        if now_s - began_s >= 1.0:
            began_s, count = now_s, 0
        self._seen[address] = (began_s, count + 1)
        if len(self._seen) > ADDRESSES_REMEMBERED:
            self._seen.popitem(last=False)
        if count >= self._per_s:
            self.left_out += 1
            return
        more = f" ({self.left_out} more refusals were left out)" if self.left_out else ""
        self.left_out = 0
        self._report(plain(f"refused {address}: {sentence}{more}"))
