"""A hub's watch over divergence: it pauses the run, which goes back where `on_divergence` says so.

What is decided is in the run's plan (`Diverged`) before the run is paused. A hub that is to go back
ends in order, and its next start goes back (`islands.cli.keeping.resumed`): the same process starts
it, or whoever does so after a kill. A run that diverges before it is past the merges at which the
last divergence was noticed is ended, and goes back by hand alone.
"""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf, nan
from pathlib import Path

from islands.cli.control import Target, tell
from islands.keeping.divergence import Divergence, DivergenceWatch, Moment
from islands.keeping.finding import Found, find, newest_until
from islands.keeping.saving import store_of
from islands.protocol.errors import IslandsError, UserError
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.messages.control import Verb
from islands.protocol.messages.membership import NOT_FINITE
from islands.protocol.tape import member_entries as members
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import RunDiverged
from islands.run.coordinator import Coordinator
from islands.run.hosting.process_runtime import say
from islands.settings.groups import OnDivergence
from islands.settings.run_spec import Diverged
from messaging.actors.scope import Scope
from messaging.errors import LinkLost, LocalFault

LOOK_S = 0.25
"""Learners report less often than that, with their heartbeats."""

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
                    await self._act(self._found)
                elif self._watch.suspects and not suspected and self._watch.sound is not None:
                    await asyncio.to_thread(self._hold, self._watch.sound)
                elif suspected and not self._watch.suspects:
                    self._held.close()

    def _hear(self, _: str, entry: Entry) -> None:
        learners = self._hub.folder.figures.learners
        match entry:
            case members.Diverged(name, times=times):
                steps = {each: figures.steps for each, figures in learners.items()}
                here = [each for each, figures in learners.items() if not figures.gone]
                self._found = self._found or self._watch.relapse(name, times, steps, here)
                self._news.set()
            case members.Evicted(name) | members.Left(name):
                if not isinstance(entry, members.Left) or entry.reason != NOT_FINITE:
                    self._watch.forget(name)
            case members.Resumed():
                self._resumed = self._told
                self._news.set()
            case _:
                pass

    def _look(self) -> None:
        """Look at the loss, if a look is due."""
        hub, figures = self._hub, self._hub.folder.figures
        here = {name: each for name, each in figures.learners.items() if not each.gone}
        known = figures.last_merge_s > -inf or hub.spec.settings.gossip.on
        steps = {name: each.steps for name, each in here.items()}
        if self._told or not known or not self._watch.due(hub.now_s, steps):
            return
        loss = figures.loss
        if loss is None and any(each.diverged for each in here.values()):
            loss = nan
        if loss is not None:
            found = self._watch.look(hub.now_s, loss, self._moment)
            self._found = self._found or found

    @property
    def _moment(self) -> Moment:
        figures = self._hub.folder.figures
        return Moment(figures.merges, figures.booked or figures.tokens)

    def _hold(self, sound: Moment) -> Found | None:
        """Find the checkpoint to go back to, and keep it from being removed."""
        store = store_of(self._options, self._hub.settings.folder)
        try:
            found = newest_until(store, sound.merges)
            if found is not None:
                self._held.enter_context(store.reading(found.manifest.name))
        except (IslandsError, OSError) as error:
            say(f"the checkpoints cannot be read: {error}")
            return None
        return found

    # --- once it has diverged -----------------------------------------------------------------

    async def _act(self, found: Divergence) -> None:
        hub, earlier, now = self._hub, self._hub.plan.diverged, self._moment
        right = await asyncio.to_thread(self._hold, found.sound)
        to = "" if right is None else right.told
        lost = 0 if right is None else max(0, now.tokens - right.manifest.tokens)
        again = earlier is not None and found.sound.merges <= earlier.merges
        resumes = self._options.on_divergence is OnDivergence.RESUME
        back = resumes and not again and right is not None
        command = self._command(to) if to else ""
        ends = resumes and again
        then = f"it goes back to {to}, and loses {lost:,} tokens"
        if not back:
            here = f"the run {'ends' if ends else 'is paused'}; once this hub has ended, this goes"
            then = f"{here} back to {to}, and loses {lost:,} tokens: {command}"
        if not to:
            then = f"the run {'ends' if ends else 'is paused'}, for no checkpoint is from before"
        try:
            diverged = Diverged(now.merges, to, goes_back=back)
            await hub.keep_plan(replace(hub.plan, diverged=diverged))
        except IslandsError as error:
            say(f"what follows is not kept beyond this start of the hub: {error}")
        hub.folder.write(hub.elapsed_s, "hub", RunDiverged(found.why, then, to, lost, command))
        say(f"the run has diverged: {found.why}; {then}")
        await self._pause()
        if back:
            self.goes_back = True
            await hub.leave("it goes back")
        elif ends:
            text = "it has diverged again, before it was past where it did so last"
            hub.cluster.fail("divergence", UserError(f"{text}: {found.why}; {then}"))

    def _command(self, to: str) -> str:
        """Return the command by which the run goes back to a checkpoint."""
        program = "python -m islands.syncer" if self._hub.settings.syncer_here else "islands run"
        return f"{program} {going_back(self._words, self._hub.settings.folder, to)}"

    async def _pause(self) -> None:
        hub = self._hub
        address, name = hub.network.url(SUPERVISOR), hub.spec.settings.run
        here = Target((address,), name, hub.key_file, hub.settings.connecting)
        while True:  # until the supervisor has heard of it
            try:
                await tell(here, Verb.PAUSE, "", 1)
            except (IslandsError, LinkLost, LocalFault) as error:
                say(f"the run that has diverged cannot be paused: {error}")
                await asyncio.sleep(LOOK_S)
            else:
                return

    async def _go_on(self) -> None:
        """Watch anew, as somebody has the run go on: its loss may be as high as it likes."""
        self._told = self._resumed = False
        self._found, self._watch = None, self._new_watch()
        self._held.close()
        await self._hub.keep_plan(replace(self._hub.plan, diverged=None))

    async def _remind(self) -> None:
        """Have a run that diverged in an earlier start stay paused, and keep its way back."""
        before = self._hub.plan.diverged
        if before is None or not before.back_to:
            return
        self._told = True
        with contextlib.suppress(IslandsError, OSError):
            found = find(before.back_to, self._hub.settings.folder)
            self._held.enter_context(found.store.reading(found.manifest.name))
        say(f"the run is paused, as it diverged; this goes back: {self._command(before.back_to)}")
        await self._pause()


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
