"""A hub's watch over divergence: it pauses the run, which goes back where `on_divergence` says so.

The run is paused at once; then what is decided is written in its plan (`Diverged`). A hub that is
to go back ends in order, and its next start goes back (`islands.cli.keeping.resumed`): the same
process starts it, or whoever does so after a kill. A run that diverges before it is past the
merges at which the last divergence was noticed is ended, and goes back by hand alone.
"""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf, nan
from pathlib import Path

from islands.files.run_files import PROMOTED_FILE
from islands.keeping.divergence import Divergence, DivergenceWatch
from islands.keeping.finding import Found, newest_until
from islands.keeping.manifest import age_of
from islands.keeping.saving import store_of
from islands.protocol.errors import IslandsError, UserError
from islands.protocol.identities import SYNCER, Status
from islands.protocol.messages.membership import NOT_FINITE
from islands.protocol.tape import member_entries as members
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import RunDiverged
from islands.run.coordinator import Coordinator
from islands.run.hosting.process_runtime import say
from islands.run.records.figures import LearnerFigures
from islands.settings.groups import OnDivergence
from islands.settings.run_spec import Diverged, Way
from messaging.actors.scope import Scope

LOOK_S = 0.5
"""Learners report with their heartbeats, which come less often than that by default."""

LOOKS = 20
"""So often a hub looks whether its run is paused, before it does what comes next all the same."""

AGAIN = -1
"""In place of an exit code: the hub is to be started again, and goes back."""


def going_back(words: tuple[str, ...], folder: Path, to: str) -> str:
    """Return the command that goes back to a checkpoint, from the words that started the hub."""
    kept, rest = list[str](), iter(words)
    for word in rest:
        option, _, value = word.partition("=")
        if option not in ("--folder", "--resume"):
            kept.append(word)
        elif not value:
            next(rest, None)
    return shlex.join([*kept, "--folder", str(folder), "--resume", to])


class Guard:
    """The watch over one hub, which `words` have started; `goes_back` once it is to start again."""

    def __init__(self, hub: Coordinator, words: tuple[str, ...]) -> None:
        self.goes_back = False
        self._hub, self._words, self._options = hub, words, hub.settings.saving
        self._watch = self._new_watch()
        self._watch.learn(point[-1] for point in hub.folder.figures.losses.all())
        self._found: Divergence | None = None
        self._told = self._resumed = False
        self._news = asyncio.Event()
        self._held = contextlib.ExitStack()

    def _new_watch(self) -> DivergenceWatch:
        return DivergenceWatch(self._options.divergence_s, self._hub.spec.settings.well_steps)

    async def run(self) -> None:
        """Look at the run until its hub ends."""
        self._hub.folder.hearers.append(self._hear)
        with self._held:
            await self._remind()
            while True:  # until the hub ends
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), LOOK_S)
                self._news.clear()
                if self._resumed:
                    await self._go_on()
                suspected = self._watch.suspects
                self._look()
                if self._found is not None and not self._told:
                    self._told = True
                    await self.act(self._found)
                elif self._watch.suspects and not suspected:
                    await asyncio.to_thread(self._hold, self._watch.sound)
                elif suspected and not self._watch.suspects:
                    self._held.close()

    def _hear(self, _: str, entry: Entry) -> None:
        learners = self._hub.folder.figures.learners
        match entry:
            case members.Diverged(name, times=times):
                steps = {each: figures.steps for each, figures in learners.items()}
                found = self._watch.relapse(name, times, steps, self._here())
                self._found = self._found or found
                self._news.set()
            case members.Evicted() | members.Left() if entry.reason != NOT_FINITE:
                self._watch.forget(entry.name)
            case members.Resumed():
                self._resumed = self._told
                self._news.set()
            case _:
                pass

    def _here(self) -> dict[str, LearnerFigures]:
        learners = self._hub.folder.figures.learners
        return {name: each for name, each in learners.items() if each.status == Status.LIVE}

    def _look(self) -> None:
        """Look at the loss, if a look is due."""
        hub, figures, here = self._hub, self._hub.folder.figures, self._here()
        known = figures.last_merge_s > -inf or hub.spec.settings.gossip.on
        steps = {name: each.steps for name, each in here.items()}
        if self._told or not known or not self._watch.due(hub.now_s, steps):
            return
        loss = figures.loss
        if loss is None and any(each.diverged for each in here.values()):
            loss = nan
        if loss is not None:
            found = self._watch.look(hub.now_s, loss, figures.merges)
            self._found = self._found or found

    def _hold(self, sound: int) -> Found | None:
        """Find the checkpoint to go back to, and keep it from being removed."""
        store = store_of(self._options.checkpoints, self._hub.settings.folder)
        try:
            found = newest_until(store, sound)
            if found is not None:
                self._held.enter_context(store.reading(found.manifest.name))
        except (IslandsError, OSError) as error:
            say(f"the checkpoints cannot be read: {error}")
            return None
        return found

    # --- once it has diverged -----------------------------------------------------------------

    async def act(self, found: Divergence) -> None:
        """Pause the run, say how it goes back, and do what `on_divergence` says."""
        hub, earlier, figures = self._hub, self._hub.plan.diverged, self._hub.folder.figures
        self._pause()
        right = await asyncio.to_thread(self._hold, found.sound)
        name, path = ("", "") if right is None else (right.manifest.name, right.told)
        now = figures.booked or figures.tokens
        lost = 0 if right is None else max(0, now - right.manifest.tokens)
        again = earlier is not None and found.sound <= earlier.merges
        resumes = self._options.on_divergence is OnDivergence.RESUME
        back, ends = resumes and not again and right is not None, resumes and again
        command = self._command(name) if name else ""
        then = f"it goes back to {path}, and loses {lost:,} tokens"
        if not back:
            here = f"the run {'ends' if ends else 'is paused'}; once this hub has ended, this goes"
            then = f"{here} back to {path}, and loses {lost:,} tokens: {command}"
        if not name:
            then = (
                f"the run {'ends' if ends else 'is paused'}, for no checkpoint is from before that"
            )
        try:
            diverged = Diverged(figures.merges, name, Way.GOES_BACK if back else Way.WAITS)
            await hub.keep_plan(replace(hub.plan, diverged=diverged))
        except IslandsError as error:
            say(f"the run stays paused, for its plan cannot be written: {error}")
            back = False
        self.goes_back = back
        for _ in range(LOOKS):  # a run that is paused takes no checkpoints
            if not figures.work.paused:
                await asyncio.sleep(LOOK_S)
        hub.folder.write(hub.elapsed_s, "hub", RunDiverged(found.why, then, path, lost, command))
        say(f"the run has diverged: {found.why}; {then}")
        if back:
            await hub.leave("it goes back")
        elif ends:
            text = "it has diverged again, before it was past where it did so last"
            hub.cluster.fail("divergence", UserError(f"{text}: {found.why}; {then}"))

    def _command(self, to: str) -> str:
        """Return the command by which the run goes back to a checkpoint."""
        hub = self._hub.settings
        program = "python -m islands.syncer" if hub.syncer_here else "islands run"
        if (hub.folder / PROMOTED_FILE).exists():  # its options are a standby's
            program = "python -m islands.standby"
        return f"{program} {going_back(self._words, self._hub.settings.folder, to)}"

    def _pause(self) -> None:
        supervisor = self._hub.cluster.supervisor
        if supervisor is not None:
            supervisor.run_diverged()

    async def _go_on(self) -> None:
        """Watch anew, as somebody has the run go on: its loss may be as high as it likes."""
        self._told = self._resumed = False
        self._found, self._watch = None, self._new_watch()
        self._held.close()
        await self._hub.keep_plan(replace(self._hub.plan, diverged=None))

    async def _remind(self) -> None:
        """Have a run that diverged in an earlier start stay paused, and keep its way back."""
        before = self._hub.plan.diverged
        if before is None or not before.checkpoint:
            return
        if before.way is Way.WENT_BACK:
            self._watch.sound = age_of(before.checkpoint)[1]
            return
        self._told = True
        with contextlib.suppress(IslandsError, OSError):
            store = store_of(self._options.checkpoints, self._hub.settings.folder)
            self._held.enter_context(store.reading(before.checkpoint))
        say(f"the run is paused: it diverged, and {self._command(before.checkpoint)} goes back")
        self._pause()
        resumes = self._options.on_divergence is OnDivergence.RESUME
        if before.way is Way.GOES_BACK and resumes:  # processes of a killed hub were in the way
            self.goes_back = True
            await self._hub.leave("it goes back")


@asynccontextmanager
async def guarded(hub: Coordinator, words: tuple[str, ...]) -> AsyncIterator[Guard]:
    """Watch over divergence while the block lasts, unless the hub keeps no checkpoints."""
    guard = Guard(hub, words)
    keeps = hub.settings.syncer_here or SYNCER in hub.cluster.spec.launched
    if hub.settings.saving.on_divergence is OnDivergence.IGNORE or not keeps:
        yield guard
        return

    def failed(part: str, error: BaseException) -> None:
        say(f"{part} failed, so nobody sees whether the run diverges: {error!r}")

    async with Scope("divergence", failed) as scope:
        scope.spawn(guard.run(), "the watch over it")
        yield guard
