"""Host settings: what cannot work is refused in a sentence that names it; addresses become URLs."""

import re
from pathlib import Path

import pytest

from islands.protocol.errors import SettingsError
from islands.protocol.identities import NAME
from islands.protocol.settings.addresses import hub_urls, peer_host, split_address
from islands.settings.commands import AddOptions, DemoOptions, OperatorOptions, RemoveOptions
from islands.settings.groups import (
    ConnectOptions,
    ListenOptions,
    RunFile,
    default_name,
    device_indices,
)
from islands.settings.host import (
    LearnerOptions,
    ObserverOptions,
    RunOptions,
    SupervisorOptions,
    SyncerOptions,
)

WRONG = [
    (RunFile, {"task": "line"}, "task is 'line'; it must be of the form package.module:Class"),
    (RunFile, {"start_from": Path("a.npz")}, "start_from is a.npz; it must be a .safetensors file"),
    (ListenOptions, {"listen": "a:b"}, "listen is 'a:b'; it must be host:port"),
    (ListenOptions, {"listen": "127.0.0.1:70000"}, "listen is '127.0.0.1:70000'"),
    (ListenOptions, {"advertise": "a b"}, "advertise is 'a b'"),
    (ListenOptions, {"tls_key": Path("k")}, "tls_key is set and tls_certificate is not"),
    (ListenOptions, {"tls_client_ca": Path("c")}, "tls_client_ca is set; it needs tls_certificate"),
    (ConnectOptions, {"tls_certificate": Path("c")}, "tls_certificate is set and tls_key is not"),
    (ConnectOptions, {"wait_s": -1.0}, "wait_s is -1.0; it must be at least 0"),
    (RunOptions, {"learners": -1}, "learners is -1; it must be at least 0"),
    (RunOptions, {"devices": ("0", "1")}, "devices names 2 learners; it must name all 3"),
    (RunOptions, {"extend": True}, "extend is set; it needs the folder"),
    (SyncerOptions, {"name": "a b"}, "name is 'a b'; it must be 1 to 64 letters"),
    (SyncerOptions, {"supervisor": ("a:b:c",)}, "supervisor is 'a:b:c'"),
    (SupervisorOptions, {"syncers": ("a:b:c",)}, "syncers is 'a:b:c'"),
    (LearnerOptions, {"supervisor": ()}, "supervisor is empty"),
    (LearnerOptions, {"devices": "one"}, "devices is 'one'; it must be all, or such as 0,1 or 0-3"),
    (LearnerOptions, {"name": "../x"}, "name is '../x'"),
    (LearnerOptions, {"threads": 0}, "threads is 0"),
    (ObserverOptions, {"evaluate_every_s": 0.0}, "evaluate_every_s is 0.0"),
    (ObserverOptions, {"name": ""}, "name is ''"),
    (DemoOptions, {"learners": 0}, "learners is 0; it must be at least 1"),
    (OperatorOptions, {}, "neither folder nor supervisor is set"),
    (OperatorOptions, {"supervisor": ("a",)}, "key_file is not set"),
    (RemoveOptions, {"folder": Path("r")}, "name is not set; name a learner"),
    (AddOptions, {"folder": Path("r"), "learners": "0"}, "learners is '0'"),
]


@pytest.mark.parametrize(("options", "changes", "sentence"), WRONG)
def test_what_cannot_work_is_refused_in_a_sentence(
    options: type, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)) as refused:
        options(**changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("hub.example:9", ("hub.example", 9)),
        ("hub", ("hub", 7070)),
        ("[::1]:9", ("::1", 9)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, expected: tuple[str, int]) -> None:
    assert split_address("listen", address) == expected


@pytest.mark.parametrize(
    ("address", "tls", "url"),
    [
        ("hub", False, "ws://hub:7070/supervisor"),
        ("hub:9", True, "wss://hub:9/supervisor"),
        ("ws://hub:9", True, "ws://hub:9/supervisor"),
        ("wss://hub:9/supervisor", False, "wss://hub:9/supervisor"),
        ("[::1]:9", False, "ws://[::1]:9/supervisor"),
        ("ws://hub:9/other", False, "ws://hub:9/other"),
    ],
)
def test_an_address_becomes_the_url_to_dial(address: str, *, tls: bool, url: str) -> None:
    """What the hub's banner prints is taken as it is, and so is what a person would type."""
    assert hub_urls("supervisor", (address,), "supervisor", tls=tls) == (url,)


@pytest.mark.parametrize("address", ["ws://hub:1/supervisor?token=hush", "ws://hush@hub:1"])
def test_a_secret_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(SettingsError, match="token_file") as refused:
        LearnerOptions(supervisor=(address,))
    assert "hush" not in str(refused.value)


def test_trust_in_an_authority_means_tls() -> None:
    trusting = ConnectOptions(tls_ca=Path("ca.pem"))
    assert LearnerOptions(("hub",), trusting).supervisor_urls == ("wss://hub:7070/supervisor",)
    assert LearnerOptions(("hub",)).supervisor_urls == ("ws://hub:7070/supervisor",)
    assert SyncerOptions().supervisor_urls == ()
    assert SupervisorOptions(syncers=("a", "b")).syncer_urls == (
        "ws://a:7070/syncer",
        "ws://b:7070/syncer",
    )


@pytest.mark.parametrize(
    ("devices", "expected"),
    [("all", None), ("0", (0,)), ("0,2", (0, 2)), ("0-3", (0, 1, 2, 3)), ("0-1, 4,1", (0, 1, 4))],
)
def test_devices_are_indices_or_all(devices: str, expected: tuple[int, ...] | None) -> None:
    assert device_indices(devices) == expected


def test_a_default_name_is_allowed_and_new_each_time() -> None:
    names = {default_name() for _ in range(8)}
    assert len(names) > 1
    assert all(NAME.fullmatch(name) for name in names)


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
