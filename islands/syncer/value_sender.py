"""Published values on their way to their receivers: whole, as increments, or in shares.

A value is sent in shares to a member whose hosts all have sessions (`shares.py`): to each
host its own, and to the member the message that tells all else. Whoever does not report that it has
adopted it is sent it again, and then whole; and until a version that went in shares is reported as
adopted, or a newer one is, every other version goes whole. So the hosts of an island have the
shares of one version to wait for, and a host that is always late, or lost its share, costs the
others at most that version: the whole value that follows replaces it on each host.
"""

from collections.abc import Iterable
from dataclasses import replace

from islands.actors.ports import Worker
from islands.protocol.identities import LearnerName, Version
from islands.protocol.messages.shares import UpdateShare
from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.syncer.shares import ShareSessions
from islands.syncer.share_receiver import Links
from islands.syncer.value_store import ValueStore
from messaging.codec.tensors import digest_of
from messaging.links.link import Lane


class ValueSender:
    """Sends the values of the store.

    Args:
        store: holds them.
        sessions: who is sent shares.
        worker: computes digests of shares, off the loop.
        links: the syncer's, whose state tells what receivers have reported.
    """

    def __init__(
        self, store: ValueStore, sessions: ShareSessions, worker: Worker, links: Links
    ) -> None:
        """Have sent nothing yet."""
        self._store = store
        self._sessions = sessions
        self._worker = worker
        self._links = links
        self._sent: dict[int, dict[int, Version]] = {}
        self._in_shares: dict[int, dict[int, Version]] = {}
        self._preparing: set[tuple[int, int, Version]] = set()

    def forget(self, connection: int) -> None:
        """Forget what was sent over a link that is gone."""
        self._sent.pop(connection, None)
        self._in_shares.pop(connection, None)

    def send(self, connection: int, name: LearnerName | None, message: FragmentUpdate) -> None:
        """Send a version, unless it is still being sent: that may outlast a resend interval.

        A newer version is queued behind it, and replaces any that is still queued.
        """
        fragment, version = message.fragment, message.version
        link = self._links.link(connection)
        if link is None:
            return
        sent = self._sent.setdefault(connection, {})
        again = sent.get(fragment) == version
        if again and self._is_sending(connection, name, message):
            return
        sent[fragment] = version
        receivers = None
        if not again and message.since is None and self._has_settled(connection, name, fragment):
            receivers = self._sessions.receivers(connection, name, fragment)
        if receivers is None:
            self._send_whole(connection, message)
            return
        self._in_shares.setdefault(connection, {})[fragment] = version
        value = self._store.payload(message)[0]
        parts = {
            host: tuple(value[4 * start : 4 * stop] for start, stop in ranges)
            for host, ranges in receivers.items()
        }
        self._preparing.add((connection, fragment, version))

        def send(digests: dict[int, str]) -> None:
            self._preparing.discard((connection, fragment, version))
            newest = self._sent.get(connection, {}).get(fragment) == version
            if not newest or self._links.link(connection) is not link:
                return
            if self._sessions.receivers(connection, name, fragment) != receivers:
                self._send_whole(connection, message)
                return
            for host, ranges in receivers.items():
                if host == connection:
                    told = replace(message, ranges=ranges, share_digest=digests[host])
                    self._send(host, told, parts[host], fragment)
                else:
                    share = UpdateShare(fragment, version, ranges, digests[host])
                    self._send(host, share, parts[host], fragment)

        self._worker.submit(
            lambda: {host: digest_of(buffers) for host, buffers in parts.items()}, send
        )

    def _has_settled(self, connection: int, name: LearnerName | None, fragment: int) -> bool:
        """Whether the receiver has adopted what it was last sent in shares, or a newer version."""
        last = self._in_shares.get(connection, {}).get(fragment)
        learner = None if name is None else self._links.state.core.members.learners.get(name)
        held = None if learner is None else learner.holds(fragment)
        return last is None or (held is not None and held >= last)

    def _is_sending(
        self, connection: int, name: LearnerName | None, message: FragmentUpdate
    ) -> bool:
        if (connection, message.fragment, message.version) in self._preparing:
            return True
        hosts: Iterable[int] = (connection,)
        if self._in_shares.get(connection, {}).get(message.fragment) == message.version:
            hosts = self._sessions.receivers(connection, name, message.fragment) or hosts
        links = [link for link in map(self._links.link, hosts) if link is not None]
        return any(link.holds(_topic(message.fragment)) for link in links)

    def _send_whole(self, connection: int, message: FragmentUpdate) -> None:
        self._send(connection, message, self._store.payload(message), message.fragment)

    def _send(
        self, connection: int, body: object, payload: tuple[memoryview, ...], fragment: int
    ) -> None:
        link = self._links.link(connection)
        self._links.send(link, body, payload, Lane.BULK, topic=_topic(fragment))


def _topic(fragment: int) -> str:
    return f"update-{fragment}"
