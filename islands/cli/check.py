"""`islands check package.module:factory`: whether a task keeps its contract, before anything runs.

Each part is told as it is found to be sound; what is not begins with the user's file and line, and
the traceback of the user's own code follows. Exit code 2 if there is something to mend.
"""

from typing import TYPE_CHECKING

from islands.cli.parsing import Common, one_line
from islands.errors import UserError
from islands.settings.host import CheckOptions

if TYPE_CHECKING:
    from islands.training.task_check import TaskReport


def run(options: CheckOptions, _: Common) -> int:
    """Check a task; returns the exit code."""
    from islands.cli.serve import spec_of
    from islands.training.host_memory import host_memory_bytes
    from islands.training.jax_workload import JaxWorkload
    from islands.training.workload import load_workload

    spec = spec_of(options.file)
    workload = load_workload(spec)
    if not isinstance(workload, JaxWorkload):
        raise UserError(f"task {spec.task!r} is a toy that needs no check")
    report = workload.check(
        spec.settings, values=not options.trace_only, room_bytes=host_memory_bytes()
    )
    show(spec.task, report)
    return 2 if report.faults else 0


def show(task: str, report: "TaskReport") -> None:
    """Print the faults first, then what is sound."""
    for fault in report.faults:
        print(one_line(fault))
        if fault.detail:
            print(f"\n{fault.detail}")
    for part, remark in report.passed:
        print(f"  {part:10} {remark}")
    for part, reason in report.skipped:
        print(f"  {part:10} {reason}")
    count = len(report.faults)
    print(f"{task}: " + (f"{count} to mend" if count else "nothing to mend"))
