"""The learner's decisions: `handle(event, now_s)` returns actions and performs none of them.

The learner steps as long as it has tokens and data, whatever happens to its links. Everything else
is done by commands that compute carries out at a step boundary, or by messages.

    joining ─▶ compiling ─▶ healing ─▶ stepping ⇄ starved ─▶ finished
       ▲                       ▲          │
       └──── evicted ──────────┴──────────┘   (memory kept, new incarnation, everything re-adopted)

The rules live in the modules of this package, each registered in `memory.py` for what it handles.
"""

from islands.protocol.gossip.events import GossipEvent
from islands.protocol.gossip.exchanges import Exchanges
from islands.protocol.gossip.gossip import Gossip
from islands.protocol.identities import LearnerName, Phase, Role
from islands.protocol.learner import events, membership, moments_recovery, steps
from islands.protocol.learner.account import Account, Pulls
from islands.protocol.learner.actions import Action
from islands.protocol.learner.memory import EVENTS, CheckpointedMoments, LearnerMemory, Moments
from islands.protocol.learner.schedule import OwnTurns, Schedule, Synchronous
from islands.protocol.membership import MembershipState
from islands.protocol.sessions import ToSyncer
from islands.protocol.settings.choices import LearnerWaits, Trigger
from islands.protocol.settings.run import RunSettings

STEPS_COMPILING = 2
"""The first steps of a process may compile."""


class LearnerState(LearnerMemory):
    """The state of one learner process, which the actor may read but never write.

    Args:
        settings: settings of the run, the same for all its members.
        name: the learner's name, unique in the run.
        fingerprint: digest of the model's layout, which the supervisor compares with its own.
        fragments: P, the number of fragments in the plan.
        kept: moments that an earlier process of this name left on disk, if there are any.
    """

    def __init__(
        self,
        settings: RunSettings,
        name: LearnerName,
        fingerprint: str,
        fragments: int,
        kept: CheckpointedMoments | None = None,
    ) -> None:
        super().__init__(
            settings=settings,
            membership=MembershipState(settings.run, Role.LEARNER, name, fingerprint),
            accounts=[Account() for _ in range(fragments)],
            pulls=Pulls(fragments, settings.open_rounds_max(fragments)),
            schedule=schedule_of(settings, name, fragments),
            moments=Moments(kept=kept),
        )

    @property
    def starting(self) -> bool:
        """Whether it still compiles, as the first of its steps may do as well."""
        return not self.compute.ready or self.compute.steps < STEPS_COMPILING

    def handle(self, event: events.Event, *, now_s: float) -> list[Action]:
        """Handle one event; returns the actions to perform, in order."""
        self.actions, self.now_s = [], now_s
        before, healing = self.phase, self.healing
        unmoved = self.compute.own_steps == 0
        if isinstance(event, GossipEvent):
            self.schedule.on_gossip(self, event)
        elif not isinstance(event, events.TimerDue):  # what is due is done after every event
            EVENTS.handle(self, event)
        moments_recovery.pursue(self)
        self.schedule.advance(self)
        if healing and not self.healing:
            steps.allow(self)
        steps.move_origin(self)
        self.reporting.due |= before is not self.phase
        # A finished process may end before its next heartbeat; who has stepped is a neighbour now.
        finished = before is not self.phase is Phase.FINISHED
        begun = self.schedule.announces and unmoved and self.compute.own_steps > 0
        if finished or begun:
            membership.show_life(self)
        steps.answer_pulls(self)
        self._report()
        membership.go_on_leaving(self)
        return self.actions

    def _report(self) -> None:
        reporting = self.reporting
        if reporting.due and self.membership.syncer_up and self.incarnation is not None:
            reporting.due = False
            reporting.steps, reporting.at_s = self.compute.steps, self.now_s
            self.actions.append(ToSyncer(self.progress(self.incarnation)))


def schedule_of(settings: RunSettings, name: LearnerName, fragments: int) -> Schedule:
    if settings.gossip.on:
        return Gossip(Exchanges(settings, name, fragments))
    if settings.trigger is Trigger.LEARNER:
        waits = settings.learner_waits is LearnerWaits.AT_TAU
        return OwnTurns(settings.interval_steps, waits)
    if settings.learner_waits is not LearnerWaits.NEVER:
        return Synchronous(settings.interval_steps, fragments, settings.overlap_steps_max)
    return Schedule()
