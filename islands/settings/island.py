"""Checks of the options that make several hosts one island."""

from islands.protocol.errors import SettingsError
from islands.protocol.settings.addresses import PORT_MAX, split_address
from islands.settings.groups import at_least


def check_island(
    hosts: int, rank: int | None, address: str | None, name: str | None, devices: str
) -> None:
    """Refuse options of an island's hosts that cannot work together.

    Args:
        hosts: number of hosts.
        rank: which of them this one is.
        address: where rank 0 serves the others.
        name: name of the learner.
        devices: JAX devices to use.

    Raises:
        SettingsError: name, value and what is allowed.
    """
    at_least("hosts", hosts, 1)
    if hosts == 1:
        if rank or address is not None:
            told = "rank" if rank else "island_address"
            raise SettingsError(f"{told} is set; it needs hosts, the number of the island's hosts")
        return
    if rank is None or not 0 <= rank < hosts:
        raise SettingsError(
            f"rank is {'not set' if rank is None else rank}; it must be this host's own number "
            f"among the {hosts} hosts, from 0 to {hosts - 1}"
        )
    if address is None:
        raise SettingsError(
            "island_address is not set; it must be the host:port at which rank 0 serves the others"
        )
    _, port = split_address("island_address", address)
    if not 0 < port < PORT_MAX:
        raise SettingsError(
            f"island_address is {address!r}; its port must be from 1 to {PORT_MAX - 1}, as JAX "
            "takes the next one"
        )
    if name is None:
        raise SettingsError(
            "name is not set; the hosts of an island must be told one name, as they are one learner"
        )
    if devices.strip() != "all":
        raise SettingsError(
            f"devices is {devices!r}; an island of several hosts uses all of their devices"
        )
