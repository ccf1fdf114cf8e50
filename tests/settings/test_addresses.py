"""At which host a member is dialled: where its session comes from, and not where it says."""

import pytest

from islands.protocol.settings.addresses import peer_host

HUB = "ws://10.0.0.1:7070/supervisor"


@pytest.mark.parametrize(
    ("address", "seen", "own", "host"),
    [
        ("ws://10.0.0.5:7000/a", "10.0.0.5", HUB, "10.0.0.5"),
        ("ws://bank.example:443/a", "10.0.0.5", HUB, "10.0.0.5"),
        ("ws://127.0.0.1:22/a", "10.0.0.5", HUB, "10.0.0.5"),
        ("ws://192.168.1.7:7000/a", "203.0.113.9", HUB, "203.0.113.9"),
        ("ws://10.0.0.1:7000/a", "127.0.0.1", HUB, "10.0.0.1"),
        ("ws://bank.example:443/a", "127.0.0.1", HUB, "10.0.0.1"),
        ("ws://127.0.0.1:7000/a", "127.0.0.1", HUB, "127.0.0.1"),
        ("ws://localhost:7000/a", "::1", HUB, "::1"),
        ("ws://a:7000/a", "127.0.0.1", "wss://hub.example:7070/supervisor", "hub.example"),
        ("ws://a:7000/a", "::ffff:10.0.0.5", HUB, "10.0.0.5"),
        ("ws://a:7000/a", "fe80::1%eth0", HUB, "fe80::1"),
        ("no address at all", "10.0.0.5", HUB, "10.0.0.5"),
        ("ws://[", "127.0.0.1", HUB, "10.0.0.1"),
        ("a", None, "supervisor", None),
    ],
)
def test_only_the_port_is_the_members_own_to_say(
    address: str, seen: str | None, own: str, host: str | None
) -> None:
    assert peer_host(address, seen, own) == host
