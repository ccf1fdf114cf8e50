"""Mistakes in the bounds on what peers may make a process spend."""

from tests.benchmarks.mutation.kind import Mutation

THRESHOLD = "messaging/websocket/threshold.py"
TESTS = ("tests/messaging/websocket/test_threshold.py",)

STRANGERS: tuple[Mutation, ...] = (
    Mutation(
        "a stranger sends without end",
        THRESHOLD,
        "            if self._left_bytes < 0:",
        "            if self._left_bytes < -(1 << 30):",
        TESTS,
    ),
    Mutation(
        "the bytes of one read alone count",
        THRESHOLD,
        "            self._left_bytes -= len(data)",
        "            self._left_bytes = REQUEST_BYTES_MAX - len(data)",
        TESTS,
    ),
    Mutation(
        "a malformed request is kept in a cycle",
        THRESHOLD,
        "            exc.__traceback__ = None  # its",
        "            pass  # its",
        TESTS,
    ),
    Mutation(
        "the answer repeats a malformed request",
        THRESHOLD,
        "        told = MALFORMED if status == HTTPStatus.BAD_REQUEST else message",
        "        told = message",
        TESTS,
    ),
    Mutation(
        "the first piece of a message passes",
        THRESHOLD,
        "if not first & 0x80 or not first & 0x0F or frames",
        "if not first & 0x0F or frames",
        TESTS,
    ),
    Mutation(
        "a flood of frames passes",
        THRESHOLD,
        " or frames > FRAMES_AT_ONCE_MAX:",
        ":",
        TESTS,
    ),
    Mutation(
        "whoever dials reads pieces",
        THRESHOLD,
        "        super().set_parser(WholeMessages(parser), payload, data_received_cb)",
        "        super().set_parser(parser, payload, data_received_cb)",
        TESTS,
    ),
    Mutation(
        "marks come without messages",
        "messaging/websocket/bulk_protocol.py",
        "            if self._marked == self.messages:",
        "            if self._marked > self.messages:",
        ("tests/messaging/websocket/test_bulk_protocol.py",),
    ),
    Mutation(
        "a control socket takes a chunk's size",
        "messaging/codec/frames.py",
        "        return _HEAD.size + self.limits.header_bytes + 1",
        "        return self.limits.frame_bytes + 1",
        TESTS,
    ),
    Mutation(
        "a secret that is no UTF-8 is an error of the hub",
        "messaging/websocket/security.py",
        '(candidate or "").encode("utf-8", "surrogatepass")',
        '(candidate or "").encode()',
        TESTS,
    ),
    Mutation(
        "settings nest without end",
        "islands/cli/yaml_file.py",
        "        if depth > DEPTH_MAX:",
        "        if depth > DEPTH_MAX + 1:",
        ("tests/cli/test_parsing.py",),
    ),
    Mutation(
        "a host gives shares of values without end",
        "islands/island/leader.py",
        ">= AHEAD_MAX * self._shared.fragments:",
        ">= 1000 * self._shared.fragments:",
        ("tests/island/test_shares.py",),
    ),
    Mutation(
        "a deep layout ends a hub that waits for one",
        "islands/layout/layout_file.py",
        "    except RecursionError as error:",
        "    except ZeroDivisionError as error:",
        ("tests/run/test_first_layout.py",),
    ),
)
