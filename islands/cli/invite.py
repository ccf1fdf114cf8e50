"""`islands invite`: write an invitation to a run, which a person uses in place of token and key."""

from datetime import UTC, datetime
from pathlib import Path

from islands.cli.parsing import Common
from islands.files.run_files import KEY_FILE
from islands.protocol.invitations import Invitations, Invited
from islands.run.hosting.hub_address import read_hub_address
from islands.run.hosting.process_runtime import credentials_of
from islands.run.hosting.revocations import read_revoked
from islands.settings.commands import InviteOptions, named
from messaging.clock import WallClock
from messaging.websocket.security import Secret


def run(options: InviteOptions, _: Common) -> int:
    folder = named(options.folder)
    hub = read_hub_address(folder)
    credentials = credentials_of(hub.run, Path(hub.key_file or folder / KEY_FILE))
    now_s = WallClock().now_s()
    invitations = Invitations(hub.run, credentials, read_revoked(folder))
    out = options.out or Path(f"{options.name}.invitation")
    Secret(invitations.make(options.name, options.role, options.days, now_s)).write(out)
    until = datetime.fromtimestamp(now_s + options.days * 86_400, UTC)
    use = {
        Invited.LEARNER: "islands join",
        Invited.OBSERVER: "python -m islands.observer",
        Invited.OPERATOR: "islands status",
    }[options.role]
    address = hub.supervisor.partition("://")[2].partition("/")[0]
    authority = " --tls_ca CA.pem" if hub.supervisor.startswith("wss:") else ""
    print(f"{out} invites {options.name} as {options.role}, until {until:%Y-%m-%d %H:%M} UTC.")
    print(f"Send it in private, for whoever has it is {options.name} to the run. There:")
    print(f"{use} --supervisor {address} --token_file {out.name}{authority}")
    return 0
