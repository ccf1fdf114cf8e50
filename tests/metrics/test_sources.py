"""What a process tells of itself, whatever its role."""

from pathlib import Path

import pytest

from islands.metrics.sources import ProcessFacts
from islands.settings.groups import ConnectOptions, ListenOptions
from messaging.clock import WallClock
from tests.messaging.certificates import make_certificates

ENDS = "islands_certificate_expiry_timestamp_seconds"
DAY_S = 86400.0


@pytest.mark.integration
def test_the_end_of_a_certificate_is_that_which_the_process_has_read(tmp_path: Path) -> None:
    """A file that is renewed, or lost, later is not what is shown to others."""
    made = make_certificates(tmp_path)
    listening = ListenOptions(tls_certificate=made.server, tls_key=made.server_key)
    facts = ProcessFacts(listening, ConnectOptions(tls_ca=made.authority))
    made.server.unlink()
    ends = {s.labels: s.value for s in facts.samples(ready=True) if s.name == ENDS}
    assert ends.keys() == {("server",), ("authority",)}
    left_s = [end_s - WallClock().now_s() for end_s in ends.values()]
    assert all(DAY_S < left < 2 * DAY_S for left in left_s)


def test_a_file_that_is_no_certificate_has_no_end(tmp_path: Path) -> None:
    """What is wrong with it is said by whoever needs it."""
    (tmp_path / "ca.pem").write_text("nothing")
    for path in (tmp_path / "ca.pem", tmp_path / "none.pem", None):
        samples = ProcessFacts(None, ConnectOptions(tls_ca=path)).samples(ready=True)
        assert ENDS not in [each.name for each in samples]
