"""What checkpoints and a mirror cost a round of the syncer, and a step of a learner.

    python -m tests.benchmarks.keeping [--windows N] [--parameters 1e6 40e6 400e6] [--folder PATH]

A round is what the syncer's workers do in one, on a real disk: two contributions are checked and
merged, the record is written, and its copies are made. Windows of rounds take turns in one process,
so that drift cancels: the journal alone; while a *checkpoint* is stored beside it, as links, or
*copied* as to another disk; with a *mirror* that follows, and with one that is waited for
(*mirrored*). Its disk is the journal's, so a mirror on a disk of its own costs less. *Rounds* are
those per second that the journal's worker does, which bounds a run; *latency* is that of a whole
round; *ratio* and its bound, the upper one of a one-sided 95 % interval, are those of latencies.
*Storing* is how long a checkpoint took. In a window a checkpoint is stored all the time at best,
and in a run as often as `--checkpoint_every` says.

Then the steps of a learner, as `own_loop` measures them: a window in which one checkpoint is taken
after the other next to one without. Aim: 1.01.
"""

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from islands.actors.epochs import epoch_disk
from islands.keeping.manifest import Retention, Schedule
from islands.keeping.mirror import LINKS, Mirror
from islands.keeping.saving import Checkpointer
from islands.keeping.store import store_at
from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.numerics import merge
from islands.numerics.outer import outer_optimizer
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket, Version
from islands.protocol.messages.training import Contribution
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge, MergePart
from islands.protocol.syncer.journalling import fresh
from islands.protocol.syncer.versions import Published
from islands.protocol.tape.process_entries import Checkpointed
from islands.settings.run_spec import RunPlan, RunSpec, write
from islands.syncer.journal import JOURNAL, Follower, Journal, encode
from islands.syncer.value_store import ValueStore
from messaging.codec.tensors import as_buffer, digest
from tests.benchmarks import own_loop

FRAGMENTS = 24
COLUMNS = 64
WINDOW_BYTES = 400e6
"""Values that a window's rounds merge in all, at most, so that one of a large model ends."""

WINDOWS = {1e6: 24, 40e6: 6, 400e6: 3}
"""Windows of each kind, by the model's parameters."""

OUTER = PRESETS[Preset.DECOUPLED].outer
KINDS = ("alone", "checkpoint", "copied", "mirror", "mirrored")


class Rounds:
    """A syncer's store and journal on a real disk, whose rounds are made one after the other."""

    def __init__(self, folder: Path, parameters: int) -> None:
        self.folder = folder
        self.latencies_s: list[float] = []
        self.written_s: list[float] = []
        shape = (max(1, parameters // FRAGMENTS // COLUMNS), COLUMNS)
        leaves = [Leaf(f"layer/{index}", shape) for index in range(FRAGMENTS)]
        settings = RunSettings(run="cost", fragments=FRAGMENTS, outer=OUTER)
        self.layout = plan(leaves, count=FRAGMENTS, min_piece_bytes=4)
        self.spec, self.plan = RunSpec(settings), RunPlan(self.layout, shards=1, begun="cost")
        write(self.folder, self.spec, self.plan)
        self.store = ValueStore(settings, self.layout, outer_optimizer(settings.outer))
        self.journal = Journal(epoch_disk(self.folder, JOURNAL), FRAGMENTS)
        self.journal.take_over()
        epoch = self.journal.epoch
        self.durable = replace(
            fresh(settings, fragments=FRAGMENTS, shards=1, epoch=epoch),
            run="cost",
            fingerprint=self.layout.fingerprint,
            begun="cost",
        )
        size = self.layout.fragments[0].size
        drawn = np.random.default_rng(0).standard_normal(size, np.float32)
        digests = self.store.keep_initial([drawn] * FRAGMENTS)
        self.store.install_seed(Version(epoch, 0), digests)
        self.payload = as_buffer(drawn * np.float32(1e-3))
        self.payload_digest = digest(self.payload)

    def make(self, follower: Follower) -> None:
        """Make a round: of its contributions, of its record, and of what follows that."""
        durable, fragment = self.durable, self.durable.merges % FRAGMENTS
        number, epoch = self.durable.merges // FRAGMENTS, self.journal.epoch
        current, target = Version(epoch, number), Version(epoch, number + 1)
        tickets = [
            Ticket(epoch, durable.merges, LearnerName(name), Incarnation(1, 1))
            for name in ("ana", "ben")
        ]
        began_s = time.perf_counter()
        for ticket in tickets:
            sent = Contribution(
                *(ticket, FragmentIndex(fragment), current, 6, 600, 600),
                *("float32", self.payload_digest),
            )
            _, measured = self.store.inspect(sent, (self.payload,))
            assert measured is not None, "it is whole"
            self.store.hold(ticket, 1, measured)
        parts = tuple(MergePart(ticket, 1, current, 6, 600, 1.0) for ticket in tickets)
        facts = self.store.merge(BeginMerge(fragment, durable.merges, current, target, parts))
        durable.sequence += 1
        durable.merges += 1
        durable.published[fragment] = Published(target, facts.digest, durable.merges)
        arrays = self.store.journal_arrays(fragment, target)
        merged_s = time.perf_counter()
        self.journal.write(durable.sequence, encode(durable), fragment, target, arrays)
        follower.follow(self.journal)
        ended_s = time.perf_counter()
        self.latencies_s.append(ended_s - began_s)
        self.written_s.append(ended_s - merged_s)
        for ticket in tickets:
            self.store.drop(ticket)


class Kinds:
    """What follows the journal in a window of each kind."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds, folder = rounds, rounds.folder
        about = rounds.spec, rounds.plan
        stores = {
            "checkpoint": store_at(folder / "checkpoints"),
            "copied": store_at(f"file://{(folder / 'copied').absolute()}"),
        }
        journal, keep = folder / JOURNAL, Retention(2)
        self.savers = {
            kind: Checkpointer(journal, store, Schedule(), keep, *about)
            for kind, store in stores.items()
        }
        self.mirrors = {
            kind: Mirror(folder, folder.with_name(kind), *about, waits=kind == "mirrored")
            for kind in ("mirror", "mirrored")
        }
        self.followers = {"alone": Follower(), **self.savers, **self.mirrors}
        self.stored_s: dict[str, list[float]] = {kind: [] for kind in self.savers}

    def window(self, kind: str, rounds: int) -> tuple[float, float]:
        """Make rounds, and then wait for what follows; returns mean latency and writing."""
        self.rounds.latencies_s.clear()
        self.rounds.written_s.clear()
        follower = self.followers[kind]
        follower.ask("the benchmark")
        for _ in range(rounds):
            self.rounds.make(follower)
        if kind in self.savers:
            self.stored_s[kind].append(self._stored(follower))
        while any((self.rounds.folder / JOURNAL).glob(f"{LINKS}/*")):
            time.sleep(0.002)
        os.sync()  # what this window left to be written delays no other one
        return fmean(self.rounds.latencies_s), fmean(self.rounds.written_s)

    def _stored(self, saver: Follower) -> float:
        """Wait until a checkpoint is stored; returns how long that took."""
        while True:
            for entry in saver.news():
                assert isinstance(entry, Checkpointed), entry
                return entry.took_s
            time.sleep(0.002)

    def close(self) -> None:
        for follower in self.followers.values():
            follower.close()


def measure(parameters: int, windows: int, folder: Path) -> None:
    """Print a line for each kind of window of one size of model."""
    rounds = Rounds(folder / "run", parameters)
    kinds = Kinds(rounds)
    for kind in KINDS:
        kinds.window(kind, FRAGMENTS if kind == "alone" else 2)
    count = max(2, min(FRAGMENTS, int(WINDOW_BYTES / (4 * parameters / FRAGMENTS))))
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for index in range(windows):
        for kind in KINDS if index % 2 == 0 else reversed(KINDS):
            found[kind].append(kinds.window(kind, count))
    kinds.close()
    alone = [latency_s for latency_s, _ in found["alone"]]
    for kind in KINDS:
        latencies, written = zip(*found[kind], strict=True)
        pairs = np.array([alone, latencies])
        stored = kinds.stored_s.get(kind, [])[1:]
        print(
            f"{parameters / 1e6:5.0f} M  {kind:<11}{1 / fmean(written):9.1f}"
            f"{1e3 * fmean(latencies):9.1f}   {pairs[1].sum() / pairs[0].sum():6.3f}   "
            f"{own_loop.upper_bound(pairs):6.3f}" + (f"{fmean(stored):9.2f}" if stored else ""),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--windows", type=int, help="of each kind")
    parser.add_argument("--parameters", type=float, nargs="*", default=tuple(WINDOWS))
    parser.add_argument("--pairs", type=int, default=8, help="of windows of steps")
    parser.add_argument("--folder", type=Path, help="on the disk that is measured")
    chosen = parser.parse_args()
    merge.warm_up()
    print("          window      rounds/s  latency ms  ratio    95 %   storing s")
    for parameters in chosen.parameters:
        with tempfile.TemporaryDirectory(prefix="keeping-", dir=chosen.folder) as folder:
            windows = chosen.windows or WINDOWS.get(parameters, min(WINDOWS.values()))
            measure(int(parameters), windows, Path(folder))
    own_loop.tell_cases([(own_loop.SAVED, own_loop.SAVING)], chosen.pairs)


if __name__ == "__main__":
    main()
