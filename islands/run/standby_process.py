"""The process of a standby, up to its promotion."""

from collections.abc import Callable

from islands.actors.epochs import epoch_disk, newest_epoch, take_epoch
from islands.actors.ports import ThreadWorker
from islands.files.disk import RealDisk
from islands.files.slots import Slots
from islands.keeping.promotion import Answer, Standby, answer, keep_standby, wished
from islands.keeping.standby import Hooks, StandbyActor
from islands.keeping.standby_state import HUB
from islands.protocol.errors import UserError
from islands.protocol.identities import SUPERVISOR, Role
from islands.protocol.syncer.journalling import APART
from islands.run.hosting import process_runtime as runtime
from islands.run.hosting.hub_requests import Requester, fetch_run_spec
from islands.run.hosting.revocations import keep_revoked
from islands.run.hosting.watchdog import Watchdog
from islands.run.roles import chance, journal_disk
from islands.settings.host import StandbyOptions
from islands.settings.run_spec import RunPlan, RunSpec, read, write
from islands.settings.wire_limits import limits_of
from messaging.clock import MonotonicClock
from messaging.websocket.network import WebsocketNetwork


async def follow(
    options: StandbyOptions, watchdog: Watchdog, promoted: Callable[[str], object]
) -> int:
    """Follow a run until it ends, or until this standby is promoted to what `promoted` gets."""
    connecting, folder = options.connecting, options.folder
    network = runtime.network_of(connecting, token=runtime.token_of(connecting))
    disk = journal_disk(folder)
    try:
        epoch = newest_epoch(Slots(disk))
        if epoch:
            raise UserError(
                f"{folder} holds the journal of a syncer, of epoch {epoch}, and no standby's copy: "
                "name another folder"
            )
        await _follow(options, network, disk, await _address(options), watchdog, promoted)
    finally:
        await network.close()
        disk.close()
    return 0


async def _address(options: StandbyOptions) -> str:
    """Return where it would listen as a hub; a port that cannot be had is known at once."""
    listening, connecting = options.listening, options.connecting
    network = runtime.network_of(connecting, listening, token=runtime.token_of(connecting))
    try:
        await network.open(listening.host, listening.port, advertise=listening.advertise)
        return network.url(SUPERVISOR)
    finally:
        await network.close()


async def _follow(
    options: StandbyOptions,
    network: WebsocketNetwork,
    disk: RealDisk,
    address: str,
    watchdog: Watchdog,
    promoted: Callable[[str], object],
) -> None:
    folder, name, addresses = options.folder, options.name, options.supervisor_urls
    spec, plan = read(folder) or await fetch_run_spec(
        network,
        addresses,
        Requester(Role.STANDBY, name),
        wait_s=options.connecting.wait_s,
        say=runtime.say,
    )
    network.allow(limits_of(plan.layout))
    key_file = runtime.key_file_of(folder, options.connecting, options.key_file)
    credentials = runtime.credentials_of(spec.settings.run, key_file, plan.begun)
    write(folder, spec, plan)
    keep_standby(folder, Standby(name, str(key_file.absolute())))
    began_s = MonotonicClock().now_s()
    tape = runtime.tape_in(folder, name, options.keeping, began_s=began_s)
    standby = StandbyActor(
        name,
        runtime.context_in(network, addresses, spec, plan, tape, began_s=began_s),
        disk=disk,
        worker=ThreadWorker(name, lambda error: standby.fail("the copy", error)),
        credentials=credentials,
        address=address,
        after_s=options.promote_after_s,
        rng=chance(),
        hooks=Hooks(
            asked=lambda: wished(folder, credentials),
            answer=lambda reason: answer(folder, Answer(reason=reason)),
            spec=lambda *told: _keep(options, plan, *told),
            revoked=lambda revoked: keep_revoked(folder, revoked),
        ),
    )
    watchdog.ready()
    runtime.say(f"standby {name} of run {spec.settings.run!r}, folder {folder}")
    await runtime.live([standby], standby.ref.stop, tape)
    if standby.promoted is None:
        return
    answer(folder, Answer(role=standby.promoted))
    promoted(standby.promoted)
    if standby.promoted == HUB:  # above those of all starts on the lost host
        known = standby.state.membership.supervisor_epoch
        take_epoch(Slots(epoch_disk(folder, SUPERVISOR)), known + APART)
    runtime.say(f"standby {name} goes on as the {standby.promoted} of the run")


def _keep(options: StandbyOptions, mine: RunPlan, spec: str, plan: bytes) -> None:
    """Write what the run is now to the standby's folder, unless it is another run."""
    told = RunSpec.decode(spec), RunPlan.decode(plan)
    if told[1].begun != mine.begun:
        raise UserError(
            f"{options.folder} is the copy of another run, or of this one before it went back to a "
            "checkpoint; name another folder"
        )
    if told != read(options.folder):
        write(options.folder, *told)
