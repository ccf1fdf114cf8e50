"""How an event or an action is written in a transcript: a few stable words, whatever its class.

A message is told in full by whoever sends it, and named by whoever hears it. Entries of the tape
are written by `entry_words` alone, without the figures that say nothing to a reviewer.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from islands.protocol import sessions
from islands.protocol.errors import IslandsError
from islands.protocol.identities import Lease
from islands.protocol.learner import actions as learner_actions
from islands.protocol.learner import events as learner_events
from islands.protocol.messages import control, membership, training
from islands.protocol.observer import state as observer
from islands.protocol.sessions import Received
from islands.protocol.supervisor import actions as supervisor_actions
from islands.protocol.supervisor import events as supervisor_events
from islands.protocol.syncer import actions as syncer_actions
from islands.protocol.syncer import events as syncer_events
from islands.protocol.tape.entry import Entry, Record

Words = Mapping[type, Callable[[Any], str]]

NOISE = {
    *("clock", "closed_s", "cosine", "digest", "direction_norm", "learners", "ledger"),
    *("merged_tokens", "norms", "opened_s", "processed", "share", "weights"),
    *("run_applied", "run_merges", "run_processed", "behind"),
}
"""Figures of entries that a reviewer of decisions need not see."""


def extent(page: membership.MembershipChanged) -> str:
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


def _view(page: membership.MembershipChanged) -> str:
    paused = "" if page.paused is None else f", paused={value(page.paused)}"
    members = " ".join(f"{one.name}/{one.incarnation}={one.status}" for one in page.members)
    return f"{extent(page)}: {members or '-'}{paused}"


def _told(progress: training.Progress) -> str:
    held = versions(one.version for one in progress.fragments)
    steps = f"{progress.steps} steps {progress.tokens} tokens"
    return f"{progress.incarnation}: {progress.phase}, {steps}, holds {held}"


def _grant(told: training.LeaseGranted) -> str:
    whose = f"to {told.incarnation}, epoch {told.epoch}"
    return f"grant {whose}: {told.quota_tokens} tokens, shards {shards(told.leases)}"


def _update(told: training.FragmentUpdate) -> str:
    merged = told.merged
    mine = "" if merged is None else f", yours to round {merged.epoch}:{merged.round}"
    return f"update {told.fragment} to {told.version}{mine}"


MESSAGES: Words = {
    membership.Join: lambda m: (
        f"join as {m.role} {m.name}" + (f", was {m.previous}" if m.previous else "")
    ),
    membership.Joined: lambda m: f"joined as {m.incarnation}, syncer at {listed(m.syncers)}",
    membership.Refused: lambda m: f"refused{', try again' if m.retry else ''}: {m.reason}",
    membership.Heartbeat: lambda m: f"heartbeat of {m.incarnation}: {m.phase}, step {m.step}",
    membership.HeartbeatAck: lambda m: f"ack, syncer at {listed(m.syncers)}",
    membership.MembershipChanged: _view,
    membership.Evicted: lambda m: f"evicted {m.incarnation}: {m.reason}",
    membership.Leave: lambda m: f"leave {m.incarnation}: {m.reason}",
    membership.Stop: lambda m: f"stop: {m.reason}",
    control.Drain: lambda m: f"drain: {m.reason}",
    control.Command: lambda m: f"command {m.verb}" + (f" {m.target}" if m.target else ""),
    control.CommandAnswer: lambda m: f"{'done' if m.done else 'not done'}: {m.told}",
    training.Hello: lambda m: (
        f"hello {_told(m.progress)}" + (f", seen epoch {m.epoch_seen}" if m.epoch_seen else "")
    ),
    training.Progress: lambda m: f"progress {_told(m)}",
    training.Welcome: lambda m: (
        f"welcome to epoch {m.epoch}: {versions(m.versions)}"
        + ("" if m.donor is None else f", donor {m.donor}")
    ),
    training.LeaseGranted: _grant,
    training.FinalRound: lambda m: f"final-round of epoch {m.epoch}: {m.reason}",
    training.Paused: lambda m: f"pause-{'on' if m.paused else 'off'} of epoch {m.epoch}",
    training.StateRequest: lambda m: f"moments-request piece {m.piece}",
    training.StateOffer: lambda m: f"moments piece {m.piece} of {m.pieces}",
    training.PullFragment: lambda m: f"pull {m.ticket} of {m.fragment} at {m.version}",
    training.Contribution: lambda m: (
        f"contribution {m.ticket} of {m.fragment}: {m.steps} steps {m.tokens} tokens since {m.base}"
    ),
    training.ContributionDeclined: lambda m: f"decline {m.ticket} of {m.fragment}: {m.reason}",
    training.ContributionFate: lambda m: f"fate {m.ticket} of {m.fragment}: {m.fate}, {m.reason}",
    training.FragmentUpdate: _update,
    training.FragmentRequest: lambda m: f"seed-request of {m.fragment}",
}


def of(words: Words, thing: object) -> str:
    kind = type(thing)
    return words[kind](thing) if kind in words else ""


def message_words(message: object) -> str:
    """What a message says; its first word names its kind."""
    return of(MESSAGES, message) or type(message).__name__


# --- actions -----------------------------------------------------------------------------------


def _merge(action: syncer_actions.BeginMerge) -> str:
    parts = listed(f"{one.ticket.name}:{one.steps}" for one in action.parts)
    whole = f"{action.fragment} from {action.current} to {action.target}"
    return f"merge round {action.round}, {whole}: {parts}"


def _journal(action: syncer_actions.WriteJournal) -> str:
    books = "" if action.fragment is None else f" and {action.fragment} at {action.version}"
    return f"write record {action.sequence}: books{books}"


ACTIONS: Words = {
    Record: lambda a: f"* {entry_words(a.entry)}",
    sessions.ToSupervisor: lambda a: f"→ supervisor: {message_words(a.message)}",
    sessions.ToSyncer: lambda a: f"→ syncer: {message_words(a.message)}",
    sessions.Exit: lambda a: f"exit: {a.reason}",
    syncer_actions.Exit: lambda a: f"exit: {a.reason}",
    syncer_actions.FinishRun: lambda a: f"finish run: {a.reason}",
    supervisor_actions.FinishRun: lambda a: f"finish run: {a.reason}",
    syncer_actions.BeginMerge: _merge,
    syncer_actions.DropContribution: lambda a: f"drop payload of {a.ticket}",
    syncer_actions.InstallSeed: lambda a: f"install seed as {a.version}",
    syncer_actions.ReleaseValues: lambda a: f"free values of {a.fragment} before {a.version}",
    syncer_actions.WriteJournal: _journal,
    sessions.DialSyncer: lambda a: f"dial {a.address}",
    sessions.DropSyncerLink: lambda a: f"hang up on syncer: {a.reason}",
    learner_actions.Contribute: lambda a: f"→ syncer: {message_words(a.message)}",
    learner_actions.ReadValue: lambda a: f"read value of {a.request.fragment}",
    learner_actions.OfferSeed: lambda a: f"→ syncer: seed of {a.message.fragment}",
    learner_actions.AdoptValue: lambda a: f"adopt {a.fragment} at {a.version}",
    learner_actions.PlanSnapshots: lambda a: f"snapshots of {listed(a.fragments)} at each boundary",
    learner_actions.AllowSteps: lambda a: (
        f"allow steps to {a.until_tokens} tokens, shards {shards(a.leases)}"
    ),
    learner_actions.ResetMoments: lambda _: "reset moments",
    learner_actions.ToPeer: lambda a: f"→ {a.peer}: {message_words(a.message)}",
    learner_actions.ReadMoments: lambda a: f"read piece {a.piece} of moments",
    learner_actions.LoadMoments: lambda a: f"load {len(a.pieces)} pieces of moments",
    learner_actions.LoadCheckpoint: lambda _: "load moments from disk",
    learner_actions.SetTimer: lambda a: f"remind after {a.after_s:g} s",
    supervisor_actions.Drop: lambda a: f"hang up: {a.reason}",
    supervisor_actions.SendRunSpec: lambda a: f"tell {a.name} what the run is",
    supervisor_actions.StartProcess: lambda a: f"start {a.name} after {a.delay_s:g} s",
    supervisor_actions.KillProcess: lambda a: f"kill {a.name}: {a.reason}",
    supervisor_actions.GiveUp: lambda a: f"give up {a.name}: {a.reason}",
    observer.Keep: lambda a: f"keep {a.message.fragment} at {a.message.version}",
    observer.Evaluate: lambda _: "evaluate",
}


def action_words(action: object, names: Mapping[int, str]) -> str:
    """One line for an action."""
    match action:
        case IslandsError():
            return f"ENDS: {action}"
        case syncer_actions.Send() | supervisor_actions.Send() | syncer_actions.SendValue():
            return f"→ {names[action.connection]}: {message_words(action.message)}"
        case syncer_actions.Dismiss(connection, word):
            return f"→ {names[connection]}, and hang up: {message_words(word)}"
    return of(ACTIONS, action) or type(action).__name__


# --- events ------------------------------------------------------------------------------------


def _kind(message: object) -> str:
    return message_words(message).split()[0].rstrip(":,")


SAID: Mapping[type, Callable[[Any], tuple[str, str]]] = {
    syncer_events.LinkOpened: lambda e: (e.hello.name, "hello"),
    syncer_events.ContributionArrived: lambda e: (
        *(e.contribution.ticket.name, f"contribution {e.contribution.ticket}"),
    ),
    syncer_events.SeedArrived: lambda e: (e.seed.name, f"seed of {e.seed.fragment}"),
    membership.MembershipChanged: lambda e: ("supervisor", extent(e)),
    syncer_events.StopRequested: lambda e: ("supervisor", f"stop: {e.reason}"),
    syncer_events.EndHeard: lambda _: ("supervisor", "the end is heard"),
    learner_events.FromSupervisor: lambda e: ("supervisor", _kind(e.message)),
    observer.MessageArrived: lambda e: ("its hub", _kind(e.message)),
    learner_events.FromSyncer: lambda e: ("syncer", _answered(e.message) or _kind(e.message)),
    sessions.UpdateArrived: lambda e: (
        *("syncer", f"update {e.message.fragment} to {e.message.version}"),
    ),
    learner_events.StateRequested: lambda e: (e.asker, f"moments-request piece {e.message.piece}"),
    learner_events.PieceArrived: lambda e: (e.sender, f"moments piece {e.message.piece}"),
}
"""Who said it, and what."""

HAPPENED: Words = {
    syncer_events.LinkClosed: lambda e: f"link of {e.name} down",
    syncer_events.MergeFinished: lambda e: f"round {e.round} of {e.fragment} is merged",
    syncer_events.JournalFinished: lambda e: f"record {e.sequence} is durable",
    sessions.SyncerLinkChanged: lambda e: f"link to syncer {'up' if e.up else 'down'}",
    sessions.SupervisorLinkChanged: lambda e: f"link to supervisor {'up' if e.up else 'down'}",
    supervisor_events.LinkClosed: lambda _: "a link is down",
    learner_events.StepFinished: lambda e: (
        f"step {e.steps} is complete" + ("" if e.finite else ", its loss not finite")
    ),
    learner_events.SnapshotTaken: lambda e: (
        f"snapshot of {e.fragment} since {e.base}, step {e.steps}"
    ),
    learner_events.ValueRead: lambda e: f"value of {e.request.fragment} read",
    learner_events.ValueAdopted: lambda e: f"{e.fragment} is at {e.version}",
    learner_events.Idled: lambda _: "stands still",
    learner_events.TrainerMade: lambda _: "has a trainer",
    learner_events.TrainerReady: lambda _: "has compiled",
    learner_events.MomentsRead: lambda e: f"piece {e.piece} of moments is read",
    learner_events.MomentsLoaded: lambda _: "moments are loaded",
    learner_events.TimerDue: lambda _: "is reminded",
}


def _answered(message: object) -> str:
    if isinstance(message, training.PullFragment | training.ContributionDeclined):
        return f"{_kind(message)} {message.ticket}"
    return ""


def event_words(event: object, names: Mapping[int, str]) -> tuple[str, bool]:
    """A few words for an event, and whether somebody said it."""
    match event:
        case Received(message, connection):
            sender, what = names[connection], _answered(message) or _kind(message)
        case (
            supervisor_events.JoinArrived(message, connection)
            | supervisor_events.HeartbeatArrived(message, connection)
            | supervisor_events.CommandArrived(message, connection)
        ):
            sender, what = names[connection], _kind(message)
        case _ if type(event) in SAID:
            sender, what = SAID[type(event)](event)
        case _:
            return f"· {of(HAPPENED, event) or 'tick'}", False
    return f"← {sender}: {what}", True
