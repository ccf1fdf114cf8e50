"""The types of all messages that a link carries, and the version of the protocol.

They are collected from the modules that declare messages, so that none is listed twice.
"""

from types import ModuleType

from islands.protocol.messages import control, gossip, membership, multihost, standby, training
from messaging.envelope import is_message

PROTOCOL = 7


def _messages_of(module: ModuleType) -> list[type]:
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and is_message(kind) and kind.__module__ == module.__name__
    ]


MESSAGE_TYPES: tuple[type, ...] = tuple(
    kind
    for module in (membership, training, gossip, standby, control)
    for kind in _messages_of(module)
)
"""Messages between the roles."""

MULTIHOST_TYPES: tuple[type, ...] = tuple(_messages_of(multihost))
"""Messages among the hosts of an island."""
