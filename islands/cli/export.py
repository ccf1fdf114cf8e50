"""`islands export RUN FILE`: the newest published values of a run as one file, without its task."""

from islands.cli.parsing import Common
from islands.protocol.errors import UserError
from islands.settings.run_reading import ExportOptions, named


def run(options: ExportOptions, _: Common) -> int:
    """Write the file, and print what it holds; return the exit code.

    Raises:
        UserError: the folder holds no values, or the file exists or cannot be made there.
        DiskError: the disk is full or broken.
    """
    from islands.protocol.settings.quantities import size
    from islands.run.records.export import metadata_of, write_arrays
    from islands.run.records.run_values import newest_values

    file = options.file
    assert file is not None, "options without a file are refused"
    if file.exists() and not options.overwrite:
        raise UserError(f"{file} exists; choose another name, or give --overwrite")
    if not file.parent.is_dir():
        raise UserError(f"{file} cannot be written: there is no folder {file.parent}")
    found = newest_values(named(options.folder))
    metadata = metadata_of(found.spec, found.fingerprint, found.cut)
    write_arrays(file, found.arrays, metadata)
    first, last = min(found.cut.versions), max(found.cut.versions)
    print(
        f"{file}: tensors: {len(found.arrays)}, {size(file.stat().st_size)}, versions {first} to "
        f"{last}, after {found.cut.tokens:,} tokens of run {found.spec.settings.run}"
    )
    return 0
