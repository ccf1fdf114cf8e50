"""What is deployed starts the documented commands with options that exist, and hides secrets."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from islands.cli.parsing import parse
from islands.engines.needs import read_islands
from islands.settings.host import LearnerOptions, RunOptions, SyncerOptions
from tests.engines.schema import faults

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
ROOT = DEPLOY.parent
UNITS = ("islands-hub.service", "islands-learner@.service")
ACCESS = ("ServiceAccount", "Role", "RoleBinding")
OPTIONS: dict[str, type[SyncerOptions | LearnerOptions]] = {
    "islands.syncer": SyncerOptions,
    "islands.learner": LearnerOptions,
}


def understood(words: list[str]) -> SyncerOptions | LearnerOptions:
    """What `python -m` makes of these words; a SettingsError if it does not know one of them."""
    module, *arguments = words
    # The one file that is read with the options; those of secrets are read by who uses them.
    here = [word.replace("/etc/islands/run.yaml", str(DEPLOY / "run.yaml")) for word in arguments]
    options, _ = parse(OPTIONS[module], here, program=f"python -m {module}", description="")
    return options


# ---------------------------------------------------------------------------------- containers


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file, its anchors merged, its variables unset but for their defaults."""
    text = (DEPLOY / "compose.yaml").read_text()
    told = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    found = yaml.safe_load(re.sub(r"\$\{\w+:\?[^}]*\}", "/secret/token", told))
    assert isinstance(found, dict)
    return found


def test_every_service_starts_a_documented_command(compose: dict[str, Any]) -> None:
    """The token is a secret file, and what a service writes is in a volume."""
    commands = {name: each["command"] for name, each in sorted(compose["services"].items())}
    hub, *learners = (understood(words) for words in commands.values())
    assert isinstance(hub, SyncerOptions)
    assert (hub.listening.host, hub.listening.port) == ("0.0.0.0", 7070)  # noqa: S104
    assert hub.listening.advertise == "hub:7070"
    assert [learner.name for learner in learners] == ["learner-0", "learner-1"]
    for learner in learners:
        assert isinstance(learner, LearnerOptions)
        assert learner.supervisor_urls == ("ws://hub:7070/supervisor",)
    assert compose["secrets"] == {"token": {"file": "/secret/token"}}
    for options, service in zip((hub, *learners), compose["services"].values(), strict=True):
        assert (service["secrets"], service["read_only"]) == (["token"], True)
        assert "environment" not in service
        assert options.connecting.token_file == Path("/run/secrets/token")
        folders = dict(reversed(volume.split(":")) for volume in service["volumes"])
        assert sorted(folders) == ["/var/cache/islands", "/var/lib/islands"]
        assert all(name in compose["volumes"] for name in folders.values())
        assert str(options.folder).startswith("/var/lib/islands")
    assert (DEPLOY / compose["configs"]["run"]["file"]).is_file()
    build = compose["services"]["hub"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_the_health_check_asks_the_port_that_is_listened_on(compose: dict[str, Any]) -> None:
    hub = compose["services"]["hub"]
    kind, python, flag, program = hub["healthcheck"]["test"]
    assert (kind, python, flag) == ("CMD", "python", "-c")
    compile(program, "healthcheck", "exec")
    options = understood(hub["command"])
    assert isinstance(options, SyncerOptions)
    assert f'"127.0.0.1", {options.listening.port}' in program


def test_the_image_copies_what_exists_and_runs_as_nobody_special() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith(("#", " "))]
    bases = [rest[0] for first, *rest in words if first == "FROM"]
    assert all(re.fullmatch(r"python:\$\{PYTHON\}-slim", base) for base in bases)
    copied = [rest[:-1] for first, *rest in words if first == "COPY" and "--from" not in rest[0]]
    ignore = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists()
        assert f"!{source}" in ignore
    assert [rest for first, *rest in words if first == "USER"] == [["islands"]]
    assert "constraints.txt" in "".join(lines)


# ---------------------------------------------------------------------------------- Kubernetes


@pytest.fixture(scope="module")
def manifests() -> dict[str, list[dict[str, Any]]]:
    """The objects of the hub on Kubernetes, by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in yaml.safe_load_all((DEPLOY / "kubernetes/hub.yaml").read_text()):
        found.setdefault(each["kind"], []).append(each)
    return found


def test_the_hub_on_kubernetes_is_valid(manifests: dict[str, list[dict[str, Any]]]) -> None:
    described = [each for kind, of in manifests.items() if kind not in ACCESS for each in of]
    assert len(described) == 5
    assert [fault for each in described for fault in faults(each)] == []
    assert set(ACCESS) < set(manifests)
    assert len({each["metadata"]["labels"]["islands-run"] for each in described}) == 1


def test_the_hub_on_kubernetes_keeps_its_folder_and_is_found_before_it_is_ready(
    manifests: dict[str, list[dict[str, Any]]],
) -> None:
    (service,), (hub,) = manifests["Service"], manifests["StatefulSet"]
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == hub["spec"]["selector"]["matchLabels"]
    assert service["metadata"]["name"] == hub["spec"]["serviceName"]
    claims = [claim["metadata"]["name"] for claim in hub["spec"]["volumeClaimTemplates"]]
    pod = hub["spec"]["template"]["spec"]
    for container in pod["containers"]:
        folders = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert folders["/var/lib/islands"] in claims
        assert container["securityContext"]["readOnlyRootFilesystem"]
    (account,) = manifests["ServiceAccount"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    ours = {"islands-run": "first", "islands-role": "learner"}
    for policy in manifests["NetworkPolicy"]:
        (rule,) = policy["spec"]["ingress"]
        assert rule["from"] == [{"podSelector": {"matchLabels": ours}}]


def test_the_hub_on_kubernetes_runs_the_documented_command(
    manifests: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    (hub,), (config,) = manifests["StatefulSet"], manifests["ConfigMap"]
    container = hub["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][:4] == ["python", "-m", "islands.cli", "run"]
    file = tmp_path / "run.yaml"
    file.write_text(config["data"]["run.yaml"])
    words = [str(file), *container["command"][5:]]
    told, _ = parse(RunOptions, words, program="islands run", description="")
    assert told.listening.advertise == "first-hub:7070"
    places = [each["mountPath"] for each in container["volumeMounts"]]
    for path in (told.folder, told.connecting.token_file):
        assert any(str(path).startswith(f"{place}/") for place in places)
    entries = read_islands(yaml.safe_load(file.read_text())["islands"])
    assert [needs.engine for needs in entries.values()] == ["kubernetes"]


# ------------------------------------------------------------------------------------- systemd


def read_unit(name: str) -> configparser.RawConfigParser:
    """A unit's settings; of those that are set twice, the last."""
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys keep their case
    parser.read_string((DEPLOY / name).read_text().replace("\\\n", " "))
    return parser


def command(name: str) -> list[str]:
    """The words that a unit hands to `python -m`, its specifiers filled in."""
    values = {"%S": "/var/lib", "%d": "/credentials", "%l": "host", "%i": "0"}
    line = read_unit(name)["Service"]["ExecStart"].replace("${ISLANDS_HUB}", "hub.example:7070")
    for specifier, value in values.items():
        line = line.replace(specifier, value)
    python, flag, *words = line.split()
    assert (python, flag) == ("/opt/islands/bin/python", "-m")
    return words


def test_units_start_the_documented_commands() -> None:
    hub, learner = (understood(command(name)) for name in UNITS)
    assert isinstance(hub, SyncerOptions)
    assert isinstance(learner, LearnerOptions)
    assert hub.folder == Path("/var/lib/islands-hub/run")
    assert hub.listening.host == "0.0.0.0"  # noqa: S104
    assert learner.name == "host-0"
    assert learner.supervisor_urls == ("ws://hub.example:7070/supervisor",)
    for options in (hub, learner):
        assert options.connecting.token_file == Path("/credentials/token")


@pytest.mark.parametrize("name", UNITS)
def test_units_restart_what_fails_and_not_what_is_mistaken(name: str) -> None:
    unit = read_unit(name)
    service = unit["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert re.fullmatch(r"\d+s", service["WatchdogSec"])
    in_vain = {"islands-hub.service": "2 3", "islands-learner@.service": "2"}[name]
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", in_vain)
    assert "StartLimitBurst" in unit["Unit"]
    assert service["LoadCredential"] == "token:/etc/islands/token"
    assert service["DynamicUser"] == "yes"


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_the_units(name: str, tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say, once the program is there."""
    text = (DEPLOY / name).read_text().replace("/opt/islands/bin/python", sys.executable)
    (tmp_path / name).write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / name],  # noqa: S607
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    ours = [line for line in found.stderr.splitlines() if "islands" in line.partition(":")[0]]
    assert (found.returncode, ours) == (0, [])


# -------------------------------------------------------------------------------------- README


def test_the_walk_through_names_what_exists() -> None:
    text = (DEPLOY / "README.md").read_text()
    for path in re.findall(r"deploy/[\w@.-]+\w", text):
        assert (ROOT / path).exists(), path
    for name in (*UNITS, "run.yaml", "compose.yaml", "Containerfile"):
        assert name in text


def test_the_walk_through_starts_learners_as_they_are_started() -> None:
    text = (DEPLOY / "README.md").read_text().replace("\\\n", " ")
    line = re.search(r"islands \s*(islands\.learner .*)", text)
    assert line is not None
    learner = understood(line[1].replace('"$(hostname)-0"', "host-0").split())
    assert isinstance(learner, LearnerOptions)
    assert learner.connecting.token_file == Path("/run/secrets/token")
