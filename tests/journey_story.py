"""What `docs/journey.md` has by hand: its introduction, and the story of a fragment.

A station of the story is a line `role sections event > rule > action`, where the action may be
missing and `*` is every event, and below it what happens. `tests/journey.py` checks each against
the code.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.code_index import ROOT

PROTOCOL = ROOT / "docs" / "protocol.md"

INTRODUCTION = """\
# The journey: event → rule → action

Generated from the code by `python -m tests.journey`; a test compares it. An actor hands an event to
its role's state, which returns actions and touches nothing; the actor performs them in order, and
what comes of it is the next event. [protocol.md](protocol.md) says what the rules are; §3.4 is its
heading of that number, and §2.1 the first item of the list under the heading §2. `Record`, an entry
for the tape, is an action of every role, and left out here.

Rules stand in `islands/protocol/<role>/`, what performs their actions in `islands/<role>/`; a path
with a folder is relative to `islands/`. After the actor's method comes what a worker, the thread of
the device or the host of the role does then ([glossary.md](glossary.md) tells these apart). *In
place* says that the method named handles an event itself. With every event a state runs further
rules: those marked *first* before the event's own, all others after it; the syncer runs these again
until nothing changes.

A message is an event as it comes (inside `FromSupervisor`, `FromSyncer`, `MessageArrived` or
`Received`, whose *dispatcher* hands it on), unless facts are needed beside it. Other events name in
brackets the message that they hold.

Gossip is no role, but a schedule of the learner. Its rules stand in `islands/protocol/gossip/`, and
`islands/learner/gossip.py` and `islands/learner/boundary.py` perform its actions. The learner hands
its events to it, and the learner's own rules call its hooks, one of them with every event.
"""

TRIP = """
learner §2.1 StepFinished > steps.py:on_step
    A step ends. Its steps and tokens are open work of every fragment.
learner §2.2 * > answering.py:answer_pulls > PlanSnapshots
    Which fragments are likely to be pulled next has changed: these are to be copied at the
    boundaries to come.
learner §2.2 SnapshotTaken > answering.py:on_snapshot
    A copy has reached the host, while the next step runs.
learner §2.3 * > state.py:_report > ToSyncer
    A report is due: `Progress` goes to the syncer, with the totals of steps and tokens.
syncer §3.1 Progress > reports.py:on_progress
    The steps reported are credit towards the next round.
syncer §3.1,§3.2,§3.3 * > scheduling.py:open_rounds > Send
    Credit suffices: a round opens, and `PullFragment` goes to each learner that is eligible.
learner §3.3 PullFragment > answering.py:on_pull
    The pull is open, until a snapshot can answer it.
learner §2.2,§5 * > answering.py:answer_pulls > Contribute
    A snapshot answers it. A worker encodes it, and `Contribution` goes to the syncer with its
    digest.
syncer §6 ContributionArrived > contribution_admission.py:on_contribution
    A worker has measured it. It passes all checks, of which the one of its norm is yet to come,
    and has arrived in its round.
syncer §3.4,§3.5,§3.6,§3.7 * > scheduling.py:close_rounds > BeginMerge
    The quorum is complete, and everybody who was asked has answered or is excused, or the grace is
    over: the round closes. Norms are checked; what passes is merged by a worker, with the outer
    step.
syncer §3.8 MergeFinished > commits.py:on_merged > WriteJournal
    The books are changed in memory, and a worker writes them and the new value to the journal.
syncer §3.8,§5 JournalFinished > commits.py:on_journalled > SendValue
    The record is durable, so the version is committed: `FragmentUpdate` goes to everybody with a
    link who lacks it, does not compile and, by `send_to`, is to have it; whole, or as increments.
learner §2.4 UpdateArrived > steps.py:on_update > AdoptValue
    The value is here, and its digest was checked. A boundary adopts it, and overwrites, mixes or
    carries over the open work that it does not contain.
observer §3.8 UpdateArrived > state.py:_on_update > Keep
    An observer keeps the value, and evaluates the newest ones at intervals.
learner §2.4 ValueAdopted > steps.py:on_adopted
    The value is the base now. What the account counts as open work is what was carried over.
learner §2.3 * > state.py:_report > ToSyncer
    The next `Progress` names the version that was adopted.
syncer §3.4,§6 Progress > reports.py:on_progress > ReleaseValues
    The ledger is settled, the time until the adoption is measured, and what nobody needs is freed.
"""
"""A fragment's round trip: role, section, event (`*` is every one), rule, action; what happens."""

BRANCHES = """
learner §2 SyncerLinkChanged > membership.py:on_syncer_link > ToSyncer
    **A link breaks.** The learner steps on, forgets open pulls but not what it sent, and says
    `Hello` over a new link.
syncer §3.4 LinkClosed > sessions.py:on_link_closed
    Meanwhile each open round excuses it in which its contribution has not arrived.
syncer §3.3 LinkOpened > sessions.py:on_link_opened > Send
    Over the new link `Welcome` answers. Rounds that still collect ask the learner again, as far as
    it has not answered them and is eligible.
learner §3.3 PullFragment > answering.py:on_pull > ToSyncer
    **A pull is declined**, as without a base or while leaving: `ContributionDeclined` says why.
syncer §3.4 ContributionDeclined > contribution_admission.py:on_decline
    The round excuses the learner; if it lacks its quorum in the end, it asks it again.
learner §2.2 ContributionSkipped > answering.py:on_skipped
    **The link does not take an answer**, full or new as it is. The pull is open again, and is
    answered after the next step, or when it is repeated.
syncer §6 ContributionArrived > contribution_admission.py:refuse > Send
    **A check fails**, say that of the digest: `ContributionFate` tells the sender, whose local
    value keeps the work; its round excuses it. Three strikes within ten minutes quarantine an
    incarnation; *late* and *stale* are none.
syncer §3.4,§6 ContributionArrived > contribution_admission.py:refuse > Send
    **It comes too late**, its round being closed or abandoned: `ContributionFate` says so.
syncer §3.4 * > scheduling.py:abandon > Send
    **A quorum is missed** until the timeout: the round is abandoned, and the fragment keeps its
    version. `ContributionFate` tells those whose contributions had arrived that they are late.
supervisor §7 Ticked > membership.py:judge_all > Send
    **A learner is silent**, so it is evicted: `Evicted` goes to it, if it still has a link.
supervisor §7 * > core.py:publish > Send
    `MembershipChanged` goes to the syncer.
syncer §6,§7,§15.4 MembershipChanged > sessions.py:on_membership > DropContribution
    What it sent to rounds that still collect is dropped, and its incarnation is fenced. What is in
    closed rounds is merged: its tokens, lost at first, are applied then.
learner §8.1 Evicted > membership.py:on_evicted > ToSupervisor
    If it lives, it keeps its moments, drops its open work, and asks to `Join` under a new
    incarnation.
learner §8.3 HeartbeatAck > membership.py:on_ack > DialSyncer
    **The syncer dies.** Learners step on, and dial it where the supervisor says that it is.
learner §2,§15.2 Welcome > membership.py:on_welcome
    If it died before the record was durable, the new syncer has the version before the merge, and
    nothing of it was merged. A learner that has adopted that version knows by it that what is in
    doubt was not applied; what is still in its local value is in its next contribution.
syncer §8.3 LinkOpened > recipients.py:send_lacking > SendValue
    If it died after that, the new syncer reads the version from its journal, and sends it to
    whoever lacks it, naming the newest contribution of the receiver that it contains.
"""
"""What may go otherwise, in the same form."""


@dataclass(frozen=True)
class Station:
    """One station; `sections` are those of the protocol that have its rule."""

    role: str
    sections: list[str]
    event: str
    rule: str
    actions: list[str]
    told: str


def stations(text: str) -> Iterator[Station]:
    """The stations of a text, in order."""
    for station in re.split(r"\n(?=\S)", text.strip()):
        head, _, told = station.partition("\n")
        role, sections_, chain = head.split(" ", 2)
        event, rule, *actions = chain.split(" > ")
        yield Station(role, sections_.split(","), event, rule, actions, " ".join(told.split()))


def sections() -> set[str]:
    """The numbers of the protocol's sections, and of the numbered rules in them."""
    found, section = set(), ""
    for line in PROTOCOL.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"##+ (§[\d.]+\d|§\d)", line):
            section = heading[1]
            found.add(section)
        elif item := re.match(r"(\d+)\. ", line):
            found.add(f"{section}.{item[1]}")
    return found
