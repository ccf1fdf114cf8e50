"""What is said is durable first, and said again to whoever does not hold it."""

from dataclasses import replace

from islands.protocol.identities import Version
from islands.protocol.messages.training import LeaseGranted
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import WriteJournal
from islands.protocol.syncer.events import JournalFinished, LinkOpened
from tests.syncer.bench import opened, seeded


def test_a_grant_waits_for_its_own_record() -> None:
    """An earlier record that is durable does not say that the grant is."""
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=None))
    for pull in opened(bench):
        bench.answer(pull)
    bench.merge()
    (merged,) = bench.written()
    holders = bench.core.durable.leases.holders
    before = holders[bench.learners["ben"].name].quota_tokens
    bench.step("ben", 1100)
    record = bench.written() or [a for a in bench.tick(2.0) if isinstance(a, WriteJournal)]
    assert holders[bench.learners["ben"].name].quota_tokens > before

    def granted() -> bool:
        return any(grant.quota_tokens > before for grant in bench.sent(LeaseGranted))

    assert not granted()
    bench.do(JournalFinished(merged.sequence))
    assert not granted()
    bench.do(JournalFinished(record[-1].sequence))
    assert granted()


def test_an_update_does_not_name_what_only_a_later_version_contains() -> None:
    """A merge is computed and not durable yet; a learner dials again, and is sent what is."""
    settings = RunSettings(interval_steps=4, fragments=1, quorum=None)
    bench = seeded("ana", settings=settings, fragments=1)
    rounds = []
    for _ in range(2):
        bench.journal()
        bench.adopt("ana")
        (pull,) = opened(bench)
        bench.answer(pull)
        bench.merge()
        rounds.append(pull.ticket.round)
    bench.hello("ana")
    (update,) = bench.updates()
    assert update.version == Version(1, 1)
    assert update.merged is None or update.merged.round == rounds[0]
    bench.journal()
    (update,) = bench.updates()
    assert update.version == Version(1, 2)
    assert update.merged is not None
    assert update.merged.round == rounds[1]


def test_a_learner_that_holds_other_bytes_of_a_version_is_sent_it_again() -> None:
    """A hello names the digests held: the same version with another digest is not the same."""
    settings = RunSettings(interval_steps=4, fragments=1, quorum=None)
    bench = seeded("ana", settings=settings, fragments=1)
    (pull,) = opened(bench)
    bench.answer(pull)
    bench.merge()
    bench.journal()
    bench.adopt("ana")
    published = bench.core.versions.published[0]
    assert published is not None
    said = bench.hello_of(bench.learners["ana"])
    for connection, digest, again in ((2, published.digest, 0), (3, "another", 1)):
        hello = replace(said, digests=(digest,))
        bench.do(LinkOpened(hello, connection, trusted=True))
        assert len(bench.updates()) == again


def test_a_grant_is_repeated_until_it_is_told() -> None:
    """Who reports less than it was granted may have missed the word; who reports it has not."""
    bench = seeded("ana")
    granted = bench.core.durable.leases.holders[bench.learners["ana"].name].quota_tokens
    bench.tick(after_s=3.0)
    assert [grant.quota_tokens for grant in bench.sent(LeaseGranted)] == [granted]
    bench.learners["ana"].quota = granted
    bench.report("ana")
    bench.tick(after_s=3.0)
    assert bench.sent(LeaseGranted) == []


def test_a_pull_is_repeated_until_it_is_answered() -> None:
    """It may have been lost; the ticket stays the same, so that it counts once."""
    bench = seeded("ana", settings=RunSettings(interval_steps=4, fragments=2, quorum=None))
    (pull,) = opened(bench)
    bench.tick(after_s=3.0)
    assert bench.pulls() == [pull]
    bench.answer(pull)
    bench.tick(after_s=3.0)
    assert bench.pulls() == []
