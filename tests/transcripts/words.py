"""How an event or an action is written in a transcript: a few stable words, whatever its class.

A message is told in full by whoever sends it, and named by whoever hears it. Entries of the tape
are written by `entry_words` alone, without the figures that say nothing to a reviewer.
"""

from collections.abc import Iterable, Mapping

from islands.protocol import sessions
from islands.protocol.errors import IslandsError
from islands.protocol.handlers import Received
from islands.protocol.identities import Lease
from islands.protocol.learner import actions as learner_actions
from islands.protocol.learner import events as learner_events
from islands.protocol.messages import training
from islands.protocol.messages.control import Command, CommandAnswer, Drain
from islands.protocol.messages.membership import (
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Leave,
    MembershipChanged,
    Refused,
    Stop,
)
from islands.protocol.messages.peers import StateOffer, StateRequest
from islands.protocol.observer import actions as observer_actions
from islands.protocol.observer import events as observer_events
from islands.protocol.supervisor import actions as supervisor_actions
from islands.protocol.supervisor import events as supervisor_events
from islands.protocol.syncer import actions as syncer_actions
from islands.protocol.syncer import events as syncer_events
from islands.protocol.tape.entry import Entry, Record

NOISE = {
    *("clock", "closed_s", "cosine", "digest", "direction_norm", "learners", "ledger"),
    *("merged_tokens", "norms", "opened_s", "processed", "share", "weights"),
    *("run_applied", "run_merges", "run_processed", "behind"),
}
"""Figures of entries that a reviewer of decisions need not see."""


def extent(page: MembershipChanged) -> str:
    return "whole view" if page.begins else "view"


# --- plain values ------------------------------------------------------------------------------


def value(one: object) -> str:
    if one is None or one == "":
        return "-"
    if isinstance(one, float):
        return f"{one:.6g}"
    if isinstance(one, Mapping):
        return listed(f"{key}:{value(held)}" for key, held in one.items())
    if isinstance(one, tuple):
        return "/".join(value(each) for each in one)
    if isinstance(one, list):
        return listed(value(each) for each in one)
    text = str(one)
    return f"'{text}'" if " " in text else text


def listed(values: Iterable[object]) -> str:
    """Values with commas between; a dash for none."""
    return ",".join(str(each) for each in values) or "-"


def versions(held: Iterable[object]) -> str:
    return " ".join("-" if version is None else str(version) for version in held)


def shards(leases: Iterable[Lease]) -> str:
    return listed(f"{one.pass_index}.{one.shard}:{one.position}" for one in leases)


def entry_words(entry: Entry) -> str:
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__ if name not in NOISE}
    told = (f"{name}={value(held)}" for name, held in fields.items() if held is not None)
    return " ".join([entry.kind, *told])


# --- messages ----------------------------------------------------------------------------------


def message_words(message: object) -> str:
    """What a message says; its first word names its kind."""
    for words_of in WORDS:
        words = words_of(message)
        if words:
            return words
    return type(message).__name__


def _membership_words(message: object) -> str:
    match message:
        case Join():
            before = "" if message.previous is None else f", was {message.previous}"
            return f"join as {message.role} {message.name}{before}"
        case Joined():
            where = listed(message.syncers)
            return f"joined as {message.incarnation}, syncer at {where}"
        case Refused():
            return f"refused{', try again' if message.retry else ''}: {message.reason}"
        case Heartbeat():
            return f"heartbeat of {message.incarnation}: {message.phase}, step {message.step}"
        case HeartbeatAck():
            return f"ack, syncer at {listed(message.syncers)}"
        case MembershipChanged():
            paused = "" if message.paused is None else f", paused={value(message.paused)}"
            members = " ".join(
                f"{one.name}/{one.incarnation}={one.status}" for one in message.members
            )
            return f"{extent(message)}: {members or '-'}{paused}"
        case Evicted():
            return f"evicted {message.incarnation}: {message.reason}"
        case Leave():
            return f"leave {message.incarnation}: {message.reason}"
        case _:
            return ""


def _operator_words(message: object) -> str:
    match message:
        case Stop():
            return f"stop: {message.reason}"
        case Drain():
            return f"drain: {message.reason}"
        case Command():
            return f"command {message.verb}" + (f" {message.target}" if message.target else "")
        case CommandAnswer():
            return f"{'done' if message.done else 'not done'}: {message.told}"
        case _:
            return ""


def _training_words(message: object) -> str:
    match message:
        case training.Hello():
            seen = f", seen epoch {message.epoch_seen}" if message.epoch_seen else ""
            return f"hello {_told(message.progress)}{seen}"
        case training.Progress():
            return f"progress {_told(message)}"
        case training.Welcome():
            donor = "" if message.donor is None else f", donor {message.donor}"
            return f"welcome to epoch {message.epoch}: {versions(message.versions)}{donor}"
        case training.LeaseGranted():
            whose = f"to {message.incarnation}, epoch {message.epoch}"
            return f"grant {whose}: {message.quota_tokens} tokens, shards {shards(message.leases)}"
        case training.FinalRound():
            return f"final-round of epoch {message.epoch}: {message.reason}"
        case training.Paused():
            return f"pause-{'on' if message.paused else 'off'} of epoch {message.epoch}"
        case _:
            return ""


def _moments_words(message: object) -> str:
    match message:
        case StateRequest():
            return f"moments-request piece {message.piece}"
        case StateOffer():
            return f"moments piece {message.piece} of {message.pieces}"
        case _:
            return ""


def _told(progress: training.Progress) -> str:
    held = versions(one.version for one in progress.fragments)
    steps = f"{progress.steps} steps {progress.tokens} tokens"
    return f"{progress.incarnation}: {progress.phase}, {steps}, holds {held}"


def _round_words(message: object) -> str:
    match message:
        case training.PullFragment():
            return f"pull {message.ticket} of {message.fragment} at {message.version}"
        case training.Contribution():
            done = f"{message.steps} steps {message.tokens} tokens since {message.base}"
            return f"contribution {message.ticket} of {message.fragment}: {done}"
        case training.ContributionDeclined():
            return f"decline {message.ticket} of {message.fragment}: {message.reason}"
        case training.ContributionFate():
            what = f"{message.ticket} of {message.fragment}"
            return f"fate {what}: {message.fate}, {message.reason}"
        case training.FragmentUpdate():
            merged = message.merged
            mine = "" if merged is None else f", yours to round {merged.epoch}:{merged.round}"
            return f"update {message.fragment} to {message.version}{mine}"
        case training.FragmentRequest():
            return f"seed-request of {message.fragment}"
        case _:
            return ""


WORDS = (_membership_words, _operator_words, _training_words, _moments_words, _round_words)


# --- actions -----------------------------------------------------------------------------------


def action_words(action: object, names: Mapping[int, str]) -> str:
    """One line for an action."""
    match action:
        case IslandsError():
            return f"ENDS: {action}"
        case Record(entry):
            return f"* {entry_words(entry)}"
        case sessions.ToSupervisor(message):
            return f"→ supervisor: {message_words(message)}"
        case sessions.ToSyncer(word):
            return f"→ syncer: {message_words(word)}"
        case syncer_actions.Send() | supervisor_actions.Send() | syncer_actions.SendValue():
            return f"→ {names[action.connection]}: {message_words(action.message)}"
        case syncer_actions.Dismiss(connection, word):
            return f"→ {names[connection]}, and hang up: {message_words(word)}"
        case sessions.Exit() | syncer_actions.Exit():
            return f"exit: {action.reason}"
        case syncer_actions.FinishRun() | supervisor_actions.FinishRun():
            return f"finish run: {action.reason}"
        case _:
            told = _syncer_words(action) or _learner_words(action) or _moments_action(action)
            return told or _other_words(action) or type(action).__name__


def _syncer_words(action: object) -> str:
    match action:
        case syncer_actions.BeginMerge(fragment, number, current, target, parts):
            told = listed(f"{one.ticket.name}:{one.steps}" for one in parts)
            return f"merge round {number}, {fragment} from {current} to {target}: {told}"
        case syncer_actions.DropContribution(ticket):
            return f"drop payload of {ticket}"
        case syncer_actions.InstallSeed(version):
            return f"install seed as {version}"
        case syncer_actions.ReleaseValues(fragment, version):
            return f"free values of {fragment} before {version}"
        case syncer_actions.WriteJournal(sequence, fragment, version):
            what = "books" if fragment is None else f"books and {fragment} at {version}"
            return f"write record {sequence}: {what}"
        case _:
            return ""


def _learner_words(action: object) -> str:
    match action:
        case sessions.DialSyncer(address):
            return f"dial {address}"
        case sessions.DropSyncerLink(reason):
            return f"hang up on syncer: {reason}"
        case learner_actions.Contribute(message):
            return f"→ syncer: {message_words(message)}"
        case learner_actions.ReadValue(request):
            return f"read value of {request.fragment}"
        case learner_actions.OfferSeed(seed):
            return f"→ syncer: seed of {seed.fragment}"
        case learner_actions.AdoptValue(fragment, version):
            return f"adopt {fragment} at {version}"
        case learner_actions.PlanSnapshots(fragments):
            return f"snapshots of {listed(fragments)} at each boundary"
        case learner_actions.AllowSteps(until_tokens, leases):
            return f"allow steps to {until_tokens} tokens, shards {shards(leases)}"
        case _:
            return ""


def _moments_action(action: object) -> str:
    match action:
        case learner_actions.ResetMoments():
            return "reset moments"
        case learner_actions.ToPeer(peer, message):
            return f"→ {peer}: {message_words(message)}"
        case learner_actions.ReadMoments(piece, _):
            return f"read piece {piece} of moments"
        case learner_actions.LoadMoments(pieces):
            return f"load {len(pieces)} pieces of moments"
        case learner_actions.LoadCheckpoint():
            return "load moments from disk"
        case learner_actions.SetTimer(after_s):
            return f"remind after {after_s:g} s"
        case _:
            return ""


def _other_words(action: object) -> str:
    match action:
        case supervisor_actions.Drop(_, reason):
            return f"hang up: {reason}"
        case supervisor_actions.SendRunSpec(_, name):
            return f"tell {name} what the run is"
        case supervisor_actions.StartProcess(name, delay_s):
            return f"start {name} after {delay_s:g} s"
        case supervisor_actions.KillProcess(name, reason):
            return f"kill {name}: {reason}"
        case supervisor_actions.GiveUp(name, reason):
            return f"give up {name}: {reason}"
        case observer_actions.Keep(message):
            return f"keep {message.fragment} at {message.version}"
        case observer_actions.Evaluate():
            return "evaluate"
        case _:
            return ""


# --- events ------------------------------------------------------------------------------------


def event_words(event: object, names: Mapping[int, str]) -> tuple[str, bool]:
    """A few words for an event, and whether somebody said it."""
    sender, message = _syncer_hears(event)
    if not sender:
        sender, message = _supervisor_hears(event, names)
    if not sender:
        sender, message = _learner_hears(event)
    if sender:
        return f"← {sender}: {message}", True
    return f"· {_happened_outside(event) or _happened_within(event) or 'tick'}", False


def _kind(message: object) -> str:
    return message_words(message).split()[0].rstrip(":,")


def _syncer_hears(event: object) -> tuple[str, str]:
    match event:
        case syncer_events.LinkOpened(hello):
            return hello.name, "hello"
        case Received(training.Progress() as progress):
            return progress.name, "progress"
        case syncer_events.ContributionArrived(contribution):
            return contribution.ticket.name, f"contribution {contribution.ticket}"
        case Received(training.ContributionDeclined() as declined):
            return declined.name, f"decline {declined.ticket}"
        case syncer_events.SeedArrived(seed):
            return seed.name, f"seed of {seed.fragment}"
        case Received(Leave() as leave):
            return leave.name, "leave"
        case MembershipChanged():
            return "supervisor", extent(event)
        case syncer_events.StopRequested(reason):
            return "supervisor", f"stop: {reason}"
        case syncer_events.EndHeard():
            return "supervisor", "the end is heard"
        case _:
            return "", ""


def _supervisor_hears(event: object, names: Mapping[int, str]) -> tuple[str, str]:
    match event:
        case (
            supervisor_events.JoinArrived(message, connection)
            | supervisor_events.HeartbeatArrived(message, connection)
            | Received(message, connection)
            | supervisor_events.CommandArrived(message, connection)
        ):
            return names[connection], _kind(message)
        case _:
            return "", ""


def _learner_hears(event: object) -> tuple[str, str]:
    match event:
        case learner_events.FromSupervisor(message):
            return "supervisor", _kind(message)
        case observer_events.MessageArrived(message):
            return "its hub", _kind(message)
        case learner_events.FromSyncer(training.PullFragment() as pull):
            return "syncer", f"pull {pull.ticket}"
        case learner_events.FromSyncer(message):
            return "syncer", _kind(message)
        case sessions.UpdateArrived(message):
            return "syncer", f"update {message.fragment} to {message.version}"
        case learner_events.StateRequested(asker, message):
            return asker, f"moments-request piece {message.piece}"
        case learner_events.PieceArrived(sender, message):
            return sender, f"moments piece {message.piece}"
        case _:
            return "", ""


def _happened_outside(event: object) -> str:
    match event:
        case syncer_events.LinkClosed(name):
            return f"link of {name} down"
        case syncer_events.MergeFinished(fragment, number):
            return f"round {number} of {fragment} is merged"
        case syncer_events.JournalFinished(sequence):
            return f"record {sequence} is durable"
        case sessions.SyncerLinkChanged(up):
            return f"link to syncer {'up' if up else 'down'}"
        case sessions.SupervisorLinkChanged(up):
            return f"link to supervisor {'up' if up else 'down'}"
        case supervisor_events.LinkClosed():
            return "a link is down"
        case _:
            return ""


def _happened_within(event: object) -> str:
    match event:
        case learner_events.StepFinished(steps):
            return f"step {steps} is complete" + ("" if event.finite else ", its loss not finite")
        case learner_events.SnapshotTaken(fragment, base, steps):
            return f"snapshot of {fragment} since {base}, step {steps}"
        case learner_events.ValueRead(request):
            return f"value of {request.fragment} read"
        case learner_events.ValueAdopted(fragment, version):
            return f"{fragment} is at {version}"
        case learner_events.Idled():
            return "stands still"
        case learner_events.TrainerMade() | learner_events.TrainerReady():
            made = isinstance(event, learner_events.TrainerMade)
            return "has a trainer" if made else "has compiled"
        case learner_events.MomentsRead(piece):
            return f"piece {piece} of moments is read"
        case learner_events.MomentsLoaded():
            return "moments are loaded"
        case learner_events.TimerDue():
            return "is reminded"
        case _:
            return ""
