"""An operator's commands to a run in progress, such as status, drain, pause, revoke and stop.

On the supervisor's host the run's folder holds its address, the token and the key; elsewhere they
are given as options. A command is signed with the key, or with an operator's invitation in place of
token and key, so the token alone does not permit it.
"""

import json
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from islands.cli.parsing import Common
from islands.files.run_files import KEY_FILE, SUMMARY_FILE, TOKEN_FILE
from islands.protocol.errors import RefusedError, UnreachableError, UserError
from islands.protocol.identities import OPERATOR, Role
from islands.protocol.invitations import Invited, parted, role_of, signing_secret
from islands.protocol.messages.control import Command, CommandAnswer, MemberFigures, Verb
from islands.run.hosting import process_runtime
from islands.run.hosting.hub_address import read_hub_address
from islands.run.hosting.hub_requests import Requester, command, fetch_run_spec
from islands.run.records.figures import in_order
from islands.settings.commands import (
    AddOptions,
    OperatorOptions,
    RemoveOptions,
    RevokeOptions,
    StatusOptions,
)
from islands.settings.groups import ConnectOptions
from islands.settings.quantities import duration
from messaging.errors import DialDenied
from messaging.websocket.network import WebsocketNetwork


@dataclass(frozen=True, slots=True)
class Target:
    """The supervisor of a run, and the secrets that a command to it takes.

    `run` is None if the supervisor is to be asked for its name, and `key_file` if the token is an
    invitation, which signs for itself.
    """

    addresses: tuple[str, ...]
    run: str | None
    key_file: Path | None
    connecting: ConnectOptions


def _run(verb: Verb, options: OperatorOptions, _: Common) -> int:
    """Send a command to the supervisor; return 0 if it was carried out, 1 if not."""
    return process_runtime.run(lambda: answered(verb, options))


status = partial(_run, Verb.STATUS)
add = partial(_run, Verb.ADD)
drain = partial(_run, Verb.DRAIN)
evict = partial(_run, Verb.EVICT)
pause = partial(_run, Verb.PAUSE)
resume = partial(_run, Verb.RESUME)
revoke = partial(_run, Verb.REVOKE)
stop = partial(_run, Verb.STOP)
save = partial(_run, Verb.SAVE)


async def answered(verb: Verb, options: OperatorOptions) -> int:
    """Send a command, print its answer, and return the exit code."""
    name, count = "", 1
    if isinstance(options, AddOptions):
        name, count = options.entry, options.count
    elif isinstance(options, RemoveOptions | RevokeOptions):
        name = options.name
    try:
        answer, status = await ask(target_of(options), verb, name, count)
    except UnreachableError as error:
        if options.folder is None or not (options.folder / SUMMARY_FILE).exists():
            raise
        ended = f"by its {SUMMARY_FILE} the run in {options.folder} has ended"
        raise UnreachableError(f"{error}; {ended}") from error
    if isinstance(options, StatusOptions) and options.json:
        if not status:
            raise RefusedError("the hub has no status as JSON to give")
        print(status.decode())
        return 0
    if verb is Verb.STATUS and answer.members:
        show(answer.members)
        show_placed(status)
    print(answer.told)
    return 0 if answer.done else 1


def target_of(options: OperatorOptions) -> Target:
    """Combine the options with what the run's folder holds; options override the folder."""
    addresses, name = options.supervisor_urls, None
    connecting, key_file = options.connecting, options.key_file
    if options.folder is not None:
        hub = read_hub_address(options.folder)
        addresses, name = addresses or (hub.supervisor,), hub.run
        if role_of(process_runtime.token_text(connecting)) is None:
            key_file = key_file or Path(hub.key_file or options.folder / KEY_FILE)
        token = Path(hub.token_file or options.folder / TOKEN_FILE)
        named = connecting.token_file is not None or {"ISLANDS_TOKEN", "ISLANDS_TOKEN_FILE"} & {
            *os.environ
        }
        if not named and token.exists():
            connecting = replace(connecting, token_file=token)
    return Target(addresses, name, key_file, connecting)


async def tell(target: Target, verb: Verb, name: str, count: int) -> CommandAnswer:
    return (await ask(target, verb, name, count))[0]


async def ask(target: Target, verb: Verb, name: str, count: int) -> tuple[CommandAnswer, bytes]:
    """Return the supervisor's answer, and the run's status as JSON, empty if the hub has none."""
    token = process_runtime.token_of(target.connecting)
    network = process_runtime.network_of(target.connecting, token=token)
    try:
        secret = await _secret(target, network)
        return await command(network, target.addresses, Command(verb, name, count), secret)
    except UnreachableError as error:
        raise UnreachableError(f"no supervisor could be told: {error}") from error
    except DialDenied as error:
        raise RefusedError(f"no supervisor could be told: {error}") from error
    finally:
        await network.close()


async def _secret(target: Target, network: WebsocketNetwork) -> str:
    """Return what signs commands: the run's key, or an operator's invitation."""
    if target.key_file is None:
        text = process_runtime.token_text(target.connecting)
        role, secret = role_of(text), parted(text)[1]
        if secret and role == Invited.OPERATOR:
            return secret
        if role is None:
            raise UserError(
                "key_file is not set, and the token is no operator's invitation: name the file of "
                "the run's key by --key_file, or that of an invitation by --token_file"
            )
        why = (
            f"is a {role}'s, which sends no commands" if role != Invited.OPERATOR else "is cut off"
        )
        raise UserError(f"the invitation {why}: ask for an operator's, and copy its whole file")
    run_name = target.run
    if run_name is None:
        asker, say = Requester(Role.OBSERVER, OPERATOR), process_runtime.say
        spec, _ = await fetch_run_spec(network, target.addresses, asker, wait_s=0.0, say=say)
        run_name = spec.settings.run
    return signing_secret(process_runtime.credentials_of(run_name, target.key_file))


def show(members: tuple[MemberFigures, ...]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("name", "role", "status", "phase", "steps", "silent", "incarnation"):
        table.add_column(title, justify="right" if title in ("steps", "silent") else "left")
    for each in sorted(members, key=lambda member: (member.role.value, in_order(member.name))):
        table.add_row(
            each.name,
            each.role.value,
            each.status.value,
            "" if each.status.ended else each.phase.value,
            f"{each.step:,}",
            "" if each.status.ended else f"{each.silent_s:.1f} s",
            str(each.incarnation),
        )
    Console().print(table)


def show_placed(status: bytes) -> None:
    """Print the islands that engines have placed, if there are any, as a table."""
    placed = json.loads(status or b"{}").get("islands", ())
    if not placed:
        return
    table = Table(box=None, pad_edge=False)
    for title in ("island", "engine", "job", "state", "since", "restarts", "where"):
        table.add_column(title, overflow="fold")
    for each in sorted(placed, key=lambda row: in_order(row["name"])):
        by_engine, by_hub = each["restarts_by_engine"], each["restarts_by_hub"]
        engine = each["engine"].rpartition(":")[2]
        counts = [f"{n} by {who}" for n, who in ((by_engine, engine), (by_hub, "the hub")) if n]
        since = "" if each["for_s"] is None else duration(each["for_s"])
        where = " ".join(filter(None, (each["where"], each["why"])))
        table.add_row(
            *(each["name"], engine, each["job"], each["state"], since),
            *(", ".join(counts) or "none", where),
        )
    print()
    Console().print(table)
