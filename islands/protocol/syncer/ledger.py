"""The token ledger: what became of every token, per fragment (protocol §6).

Every inner step trains all fragments, so each fragment has a complete account of all tokens. The
two sides of the balance are counted by different actors: a learner counts what it processed, what
its adoptions discarded (`overwritten_tokens`) and how many tokens it knows the fate of
(`settled_tokens`); the syncer counts what it applied and the fate of what it did not.
`Account.imbalance` compares the two: it is zero at every report, or there is a bug.
"""

from dataclasses import dataclass, field

import msgspec

from islands.protocol.errors import InvariantError
from islands.protocol.identities import Fate, Incarnation, LearnerName, Version
from islands.protocol.messages.training import Contribution, FragmentProgress, Merged, Progress
from islands.protocol.tape.round_entries import Row

NOTHING_REPORTED = FragmentProgress()
DEPARTED_KEPT = 512
"""Names without an open book whose tokens are kept one by one; every record of the journal has
them. Tokens of names that left before them are in the sum over all."""


@dataclass(slots=True)
class Totals:
    """Tokens of one fragment by fate, over all incarnations that ever were."""

    applied: int = 0
    rejected: int = 0
    late: int = 0
    stale: int = 0
    overwritten: int = 0
    lost: int = 0

    @property
    def settled(self) -> int:
        """Tokens that have a fate; the others are pending."""
        discarded = self.rejected + self.late + self.stale + self.overwritten + self.lost
        return self.applied + discarded

    def charge(self, fate: Fate, tokens: int) -> None:
        match fate:
            case Fate.REJECTED:
                self.rejected += tokens
            case Fate.LATE:
                self.late += tokens
            case Fate.STALE:
                self.stale += tokens
            case Fate.APPLIED:
                raise InvariantError("an applied contribution cannot be charged as discarded")


class Claim(msgspec.Struct, array_like=True, gc=False):
    """The newest contribution of an account that was not merged."""

    fate: Fate
    tokens: int


class Account(msgspec.Struct, array_like=True, gc=False):
    """The account of one fragment of one incarnation: the syncer's counts, the learner's report."""

    applied: int = 0
    merged: Merged | None = None
    merged_version: Version | None = None
    reported: FragmentProgress = NOTHING_REPORTED
    claim: Claim | None = None

    @property
    def unsettled(self) -> int:
        """Applied tokens that the learner still counts as pending."""
        return self.unsettled_at(self.reported.version)

    @property
    def imbalance(self) -> int:
        """Tokens by which learner and syncer differ at the learner's last report: always 0."""
        return self.difference(self.reported)

    def difference(self, report: FragmentProgress) -> int:
        applied = self.applied - self.unsettled_at(report.version)
        return report.settled_tokens - applied - report.overwritten_tokens

    def newer_than(self, held: Version | None) -> bool:
        known = self.reported.version
        return known is not None and (held is None or held < known)

    def unsettled_at(self, held: Version | None) -> int:
        if self.merged is None or self.merged_version is None:
            return 0
        settled = held is not None and held >= self.merged_version
        return 0 if settled else self.merged.tokens


class Book(msgspec.Struct, array_like=True, gc=False):
    """All accounts of one incarnation."""

    incarnation: Incarnation
    processed: int = 0
    accounts: list[Account] = msgspec.field(default_factory=list)

    def pending(self, fragment: int) -> int:
        account = self.accounts[fragment]
        return self.processed - account.reported.settled_tokens - account.unsettled


@dataclass(slots=True)
class Ledger:
    """The syncer's ledger. `books` holds live incarnations; `totals` include closed ones too.

    `closed` has the tokens of closed books by name, the name that was closed last at the end.
    """

    totals: list[Totals]
    closed_processed: int = 0
    closed: dict[LearnerName, int] = field(default_factory=dict)
    books: dict[LearnerName, Book] = field(default_factory=dict)

    @classmethod
    def of(cls, fragments: int) -> "Ledger":
        return cls(totals=[Totals() for _ in range(fragments)])

    def open(self, name: LearnerName, incarnation: Incarnation) -> None:
        if name in self.books:
            raise InvariantError(f"the book of {name} is still open")
        self.books[name] = Book(incarnation, accounts=[Account() for _ in self.totals])

    def close(self, name: LearnerName) -> None:
        """End an incarnation: whatever has no fate yet is lost."""
        book = self.books.pop(name)
        self.closed_processed += book.processed
        self.closed[name] = self.closed.pop(name, 0) + book.processed
        if len(self.closed) > DEPARTED_KEPT + len(self.books):
            del self.closed[next(each for each in self.closed if each not in self.books)]
        for totals, account in zip(self.totals, book.accounts, strict=True):
            totals.lost += book.processed - account.applied - account.reported.overwritten_tokens

    def forgot(self, progress: Progress) -> bool:
        """Return whether a report holds an older version than its incarnation had reported."""
        accounts = zip(self.books[progress.name].accounts, progress.fragments, strict=True)
        return any(account.newer_than(report.version) for account, report in accounts)

    def difference(self, progress: Progress) -> str | None:
        """Return why a report contradicts its sender's book, if it has one; None if it does not."""
        book = self.books.get(progress.name)
        if book is None or book.incarnation != progress.incarnation:
            book = Book(progress.incarnation, accounts=[Account() for _ in self.totals])
        for index, report in enumerate(progress.fragments):
            account = book.accounts[index]
            if report == account.reported:
                continue  # what was merged since is not settled yet: nothing differs
            discarded = report.overwritten_tokens - account.reported.overwritten_tokens
            if discarded < 0 or account.newer_than(report.version):
                return f"fragment {index} goes back to version {report.version}"
            if account.difference(report):
                return f"fragment {index} has {account.difference(report)} tokens unaccounted for"
        return None

    def can_hold(
        self, name: LearnerName, fragment: int, contribution: Contribution, granted: int
    ) -> bool:
        """Return whether a contribution's tokens were granted, processed and have no fate yet.

        A report may have overtaken it; what that counts beyond is not held against it.
        """
        book = self.books[name]
        account = book.accounts[fragment]
        processed = contribution.processed_tokens
        if not contribution.tokens <= processed <= granted:
            return False
        settled = account.reported.settled_tokens
        return contribution.tokens <= max(book.processed, processed) - settled

    def report(self, progress: Progress) -> None:
        book = self.books[progress.name]
        book.processed = max(book.processed, progress.tokens)
        for index, report in enumerate(progress.fragments):
            account = book.accounts[index]
            if report == account.reported:
                continue
            discarded = report.overwritten_tokens - account.reported.overwritten_tokens
            account.reported = report
            if discarded:
                self._charge(index, account, discarded)
            if account.imbalance:
                raise InvariantError(
                    f"ledger of {progress.name}/{progress.incarnation}, fragment {index}: "
                    f"{account.imbalance} tokens unaccounted for ({account})"
                )

    def _charge(self, index: int, account: Account, discarded: int) -> None:
        claim = account.claim
        claimed = 0 if claim is None else max(0, min(claim.tokens, discarded))
        if claim is not None:
            self.totals[index].charge(claim.fate, claimed)
            account.claim = None
        self.totals[index].overwritten += discarded - claimed

    def attest(self, name: LearnerName, processed_tokens: int) -> None:
        book = self.books[name]
        book.processed = max(book.processed, processed_tokens)

    def apply(
        self,
        name: LearnerName,
        incarnation: Incarnation,
        fragment: int,
        merged: Merged,
        version: Version,
    ) -> None:
        """Account for a contribution in `version`, also of a book that was closed meanwhile."""
        totals = self.totals[fragment]
        totals.applied += merged.tokens
        book = self.books.get(name)
        if book is None or book.incarnation != incarnation:
            totals.lost -= merged.tokens
            return
        account = book.accounts[fragment]
        if account.unsettled:
            raise InvariantError(f"fragment {fragment} of {name} would be applied twice")
        account.applied += merged.tokens
        account.merged = merged
        account.merged_version = version
        account.claim = None

    def merged_version(self, name: LearnerName, fragment: int) -> Version | None:
        book = self.books.get(name)
        return None if book is None else book.accounts[fragment].merged_version

    def merged_into(self, name: LearnerName, fragment: int, version: Version) -> Merged | None:
        """Return a learner's last merged contribution if a version contains it."""
        merged = self.merged_version(name, fragment)
        contained = merged is not None and merged <= version
        return self.books[name].accounts[fragment].merged if contained else None

    def claim(self, name: LearnerName, fragment: int, fate: Fate, tokens: int) -> None:
        """Note that a contribution was not merged; it is charged once its sender discards it."""
        self.books[name].accounts[fragment].claim = Claim(fate, tokens)

    def row(self, fragment: int) -> Row:
        totals = self.totals[fragment]
        return Row(
            processed=self.processed,
            applied=totals.applied,
            rejected=totals.rejected,
            late=totals.late,
            stale=totals.stale,
            overwritten=totals.overwritten,
            lost=totals.lost,
            pending=sum(book.pending(fragment) for book in self.books.values()),
        )

    @property
    def by_name(self) -> dict[LearnerName, int]:
        """Tokens that each learner has processed over all its incarnations, as far as reported."""
        names = {**self.closed, **self.books}
        held = {name: book.processed for name, book in self.books.items()}
        return {name: self.closed.get(name, 0) + held.get(name, 0) for name in sorted(names)}

    @property
    def applied(self) -> int:
        """Tokens that are merged, summed over fragments."""
        return sum(totals.applied for totals in self.totals)

    @property
    def processed(self) -> int:
        """Tokens processed by all incarnations, as far as reported."""
        return self.closed_processed + sum(book.processed for book in self.books.values())
