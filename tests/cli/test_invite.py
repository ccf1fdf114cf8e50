"""`islands invite` prints the command by which its person joins."""

import secrets
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.files.run_files import KEY_FILE
from islands.run.hosting.hub_address import HubAddress, write_hub_address


@pytest.mark.parametrize(("scheme", "authority"), [("ws", ""), ("wss", " --tls_ca CA.pem")])
def test_the_printed_command_dials_the_hub_as_it_listens(
    scheme: str, authority: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_hub_address(tmp_path, HubAddress(f"{scheme}://hub.example:7070/supervisor", "line"))
    key = tmp_path / KEY_FILE
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    out = tmp_path / "ana.invitation"
    assert main(["invite", "ana", "--folder", str(tmp_path), "--out", str(out)]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    shown = "--supervisor hub.example:7070 --token_file ana.invitation"
    assert command == f"islands join {shown}{authority}"
