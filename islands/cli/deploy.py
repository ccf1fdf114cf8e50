"""`islands deploy kubernetes`: a run's file as manifests, on standard output."""

import sys
from pathlib import Path

from islands.cli.parsing import Common, parse
from islands.cli.yaml_file import read_yaml
from islands.engines.kubernetes_run import ENGINE, FILE, HubNeeds, manifests, written
from islands.engines.needs import Needs, read_islands
from islands.protocol.errors import SettingsError, unusable
from islands.settings.commands import DeployOptions
from islands.settings.groups import FIRST
from islands.settings.host import SyncerOptions


def kubernetes(options: DeployOptions, _: Common) -> int:
    """Print the manifests; return the exit code.

    Raises:
        UserError: the file cannot be read, or says what Kubernetes cannot be told.
    """
    assert options.file is not None, "checked with the options"
    told, entries = _read(options.file)
    hub = HubNeeds(
        run=told.file.run.run,
        image=options.image,
        files=_files(options.file, told),
        task=told.file.task,
        namespace=options.namespace,
        cpus=options.cpus,
        memory_gib=options.memory_gib,
        volume_gib=options.volume_gib,
    )
    print(written(hub, manifests(hub, entries, apart=options.apart)), end="")
    return 0


def _read(path: Path) -> tuple[SyncerOptions, dict[str, Needs]]:
    """Return what a run's file says to its hub, and its entries that Kubernetes places."""
    told, _ = parse(
        SyncerOptions, ["--config", str(path)], program="islands syncer", description=""
    )
    table = read_yaml(path).get("islands") or {}
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: islands is {table!r}; it must be a table of entries")
    entries = read_islands(table)
    ours = {name: needs for name, needs in entries.items() if needs.engine == ENGINE}
    others = [f"{name} ({each.engine})" for name, each in entries.items() if name not in ours]
    if not ours:
        raise SettingsError(
            f"{path} has no entry of islands whose engine is {ENGINE}; `islands run` places others"
        )
    if others:
        print(f"left out, for other engines place them: {', '.join(others)}", file=sys.stderr)
    return told, ours


def _files(path: Path, told: SyncerOptions) -> dict[str, str]:
    """Return the texts that the hub reads: the run's file, and the layout that it names."""
    layout, start = told.file.layout, told.file.start_from
    if start is not None and not start.is_absolute():
        raise SettingsError(
            f"start_from is {start}; in the image it is another folder: name it by its full path"
        )
    files = {FILE: path}
    if layout is not None and layout != Path(FIRST) and not layout.is_absolute():
        files[layout.name] = layout
    try:
        return {name: place.read_text() for name, place in files.items()}
    except OSError as error:
        raise unusable(f"{layout} cannot be read", error) from error
