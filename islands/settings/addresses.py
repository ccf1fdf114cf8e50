"""Where others are: host and port as people write them, and the URLs that are dialled."""

import re

from islands.errors import SettingsError

DEFAULT_PORT = 7070
PORT_MAX = 65535


def split_address(name: str, address: str) -> tuple[str, int]:
    """Host and port of `host:port`, `host` or `[ipv6]:port`.

    Args:
        name: of the setting, for the sentence.
        address: its value; without a port it is the default one.

    Raises:
        SettingsError: it is no such address.
    """
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\]]+)(?::(\d{1,5}))?", address)
    port = DEFAULT_PORT if found is None or found[2] is None else int(found[2])
    if found is None or port > PORT_MAX:
        raise SettingsError(f"{name} is {address!r}; it must be host:port, such as 0.0.0.0:7070")
    return found[1].strip("[]"), port


def hub_urls(
    name: str, addresses: tuple[str, ...], actor: str, *, tls: bool = False
) -> tuple[str, ...]:
    """Addresses of actors as the URLs to dial.

    Args:
        name: of the setting, for the sentence.
        addresses: each a host, host:port or ws[s]://host:port[/actor].
        actor: that is meant where an address does not say.
        tls: whether an address that does not say is dialled by wss://.

    Raises:
        SettingsError: one is no such address, or carries more, such as a token.
    """
    return tuple(_url(name, address, actor, tls=tls) for address in addresses)


def _url(name: str, address: str, actor: str, *, tls: bool) -> str:
    if "?" in address or "@" in address:  # not repeated here: it may be a secret
        raise SettingsError(
            f"{name} holds more than a place; addresses are seen by many, so name the token's file "
            "by token_file instead"
        )
    found = re.fullmatch(r"(?:(wss?)://)?([^/#]+)(?:/([^/#]*))?", address)
    if found is None:
        raise SettingsError(
            f"{name} is {address!r}; it must be host:port or ws://host:port/{actor}"
        )
    host, port = split_address(name, found[2])
    scheme = found[1] or ("wss" if tls else "ws")
    place = f"[{host}]" if ":" in host else host
    return f"{scheme}://{place}:{port}/{found[3] or actor}"
