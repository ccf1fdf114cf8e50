"""Mistakes in what survives a lost folder, key or slot, and in what a resumed run keeps."""

from tests.benchmarks.mutation.kind import Mutation

SYNCER_VERSIONS = "tests/syncer/test_versions.py"
LOST_FOLDER = "tests/lab/world/test_lost_folder.py"

LOST_FILES = (
    Mutation(
        "a reused key ends another run",
        "islands/protocol/credentials.py",
        'return self._signed(*parts, "begun", self.begun)',
        "return self._signed(*parts)",
        ("tests/protocol/test_credentials.py",),
    ),
    Mutation(
        "the epoch that members prove is forgotten",
        "islands/supervisor/actor.py",
        "take_epoch(slots, epoch)",
        "take_epoch(slots)",
        (LOST_FOLDER,),
    ),
    Mutation(
        "values that differ from those that were told are taken back",
        "islands/protocol/syncer/seeding.py",
        "if not intact or seed.digest != digest:",
        "if not intact:",
        (SYNCER_VERSIONS,),
    ),
    Mutation(
        "version 0 is made before members have come back",
        "islands/protocol/syncer/seeding.py",
        "if returns_until_s is not None and now_s < returns_until_s:",
        "if returns_until_s is not None and now_s < 0:",
        (SYNCER_VERSIONS,),
    ),
    Mutation(
        "the local value seeds version 0",
        "islands/learner/boundary.py",
        "self.model.base_of(request.fragment)",
        "self.model.value(request.fragment)",
        (LOST_FOLDER,),
    ),
    Mutation(
        "a version that is published again is older than what members hold",
        "islands/syncer/journal.py",
        "again = Version(max(self.epoch, durable.epoch + 1), record.version.number)",
        "again = record.version",
        ("tests/syncer/test_journal.py",),
    ),
    Mutation(
        "new defaults replace what a run was begun with",
        "islands/settings/run_spec.py",
        "settings, now = _plain(earlier.settings), _plain(self.settings)",
        "settings, now = _plain(self.settings), _plain(self.settings)",
        ("tests/settings/test_run_spec.py",),
    ),
)
