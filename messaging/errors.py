"""Every exception of this package, in one tree.

The three branches answer the only question a caller has: whose fault is it?

    MessagingError
    ├── LocalFault              ours: a mistake in this process; correct the program or the settings
    │   ├── EncodeError         an envelope that cannot be put on a wire
    │   ├── MailboxClosed       a mailbox that will never hold another message
    │   └── VirtualTimeError    a run on the virtual clock that cannot go on
    │       ├── VirtualDeadlock     nothing is ready and no timer is set
    │       ├── VirtualLivelock     endless callbacks without the clock moving
    │       └── VirtualTimeLimit    the run took longer than its limit of virtual seconds
    ├── RemoteFault             the peer's: bytes that no honest peer of this version sends
    │   └── FrameError          not a valid frame, or beyond the limits
    └── LinkLost                nobody's: links break; an event to handle, never a crash
        ├── LinkClosed          the session is over
        └── DialFailed          no session could be opened
            └── DialDenied      retries fail until a token, certificate or address is corrected
"""

# ruff: noqa: N818 -- the tree says that these are errors; each name says what has happened.


class MessagingError(Exception):
    """Root of every exception that this package raises on purpose."""


class LocalFault(MessagingError):
    """There is a mistake in this process; do not retry, because the same call fails again."""


class EncodeError(LocalFault):
    """An envelope cannot be encoded: unregistered body, value out of range, or over the limits."""


class MailboxClosed(LocalFault):
    """The mailbox is closed and empty: no message will ever come."""


class VirtualTimeError(LocalFault):
    """A run on the virtual clock cannot continue."""


class VirtualDeadlock(VirtualTimeError):
    """Nothing is ready to run and no timer is set: every task waits for another one."""


class VirtualLivelock(VirtualTimeError):
    """Callbacks keep scheduling callbacks at one instant of the virtual clock."""


class VirtualTimeLimit(VirtualTimeError):
    """The run did not end within its limit of virtual seconds."""


class RemoteFault(MessagingError):
    """The peer violated the protocol. Close its link; do not retry with the same bytes."""


class FrameError(RemoteFault):
    """The peer sent bytes that are no valid frame, or a frame beyond the limits."""


class LinkLost(MessagingError):
    """The connection was lost or could not be opened. Dial again, with back-off."""


class LinkClosed(LinkLost):
    """The session is over; the message says who closed it and why."""


class DialFailed(LinkLost):
    """No session could be opened: nobody listens there, or no answer came in time."""


class DialDenied(DialFailed):
    """The listener rejects this process; retries fail until the cause is corrected."""
