"""Addresses: parsing of host and port as people write them, and of URLs to dial."""

import ipaddress
import re
from urllib.parse import urlsplit

from islands.protocol.errors import SettingsError

DEFAULT_PORT = 7070
PORT_MAX = 65535


def split_address(name: str, address: str) -> tuple[str, int]:
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\]]+)(?::(\d{1,5}))?", address)
    port = DEFAULT_PORT if match is None or match[2] is None else int(match[2])
    if match is None or port > PORT_MAX:
        raise SettingsError(f"{name} is {address!r}; it must be host:port, such as 0.0.0.0:7070")
    return match[1].strip("[]"), port


def host_port(host: str, port: int) -> str:
    """Return `host:port` or `[ipv6]:port`, as `split_address` splits it and others dial it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_host(address: str, seen: str | None, own: str) -> str | None:
    """Return the host at which a member is dialled by others: only the port is its own to say.

    It is where its session with the supervisor comes from (`seen`; None inside one process), so
    that nobody can have others dial a third party. Of a member on the supervisor's own machine
    nothing is seen but loopback: if it listens beyond that, others dial it where they dial the
    supervisor.
    """
    if seen is None:
        return None
    here = ipaddress.ip_address(seen.partition("%")[0])
    here = getattr(here, "ipv4_mapped", None) or here
    return (
        urlsplit(own).hostname if here.is_loopback and not _names_loopback(address) else str(here)
    )


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name, or no address at all
        return False


def _names_loopback(address: str) -> bool:
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:  # no address at all
        return False


def hub_urls(
    name: str, addresses: tuple[str, ...], actor: str, *, tls: bool = False
) -> tuple[str, ...]:
    """Turn a setting's addresses into URLs to dial: host, host:port or ws[s]://host:port[/actor].

    Those without a scheme are dialled by wss:// if `tls`, those that name no actor at `actor`.
    """
    return tuple(_url(name, address, actor, tls=tls) for address in addresses)


def _url(name: str, address: str, actor: str, *, tls: bool) -> str:
    if "?" in address or "@" in address:  # the message does not quote it: it may hold a secret
        raise SettingsError(
            f"{name} holds more than a place; addresses are seen by many, so name the token's file "
            "by token_file instead"
        )
    match = re.fullmatch(r"(?:(wss?)://)?([^/#]+)(?:/([^/#]*))?", address)
    if match is None:
        raise SettingsError(
            f"{name} is {address!r}; it must be host:port or ws://host:port/{actor}"
        )
    host, port = split_address(name, match[2])
    scheme = match[1] or ("wss" if tls else "ws")
    return f"{scheme}://{host_port(host, port)}/{match[3] or actor}"
