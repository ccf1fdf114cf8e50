"""`islands report RUN...`: the page of one or several runs in one file."""

from islands.cli.parsing import Common
from islands.settings.commands import ReportOptions


def run(options: ReportOptions, _: Common) -> int:
    """Write the file; return the exit code."""
    from islands.page.report import write_report

    folders = tuple(dict.fromkeys(options.folders))
    write_report(folders, options.out)
    print(f"{options.out}: {', '.join(map(str, folders))}; open it in a browser")
    return 0
