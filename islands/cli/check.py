"""`islands check package.module:factory`: a check that a task keeps its contract, before any run.

Each fault is printed with the user's file and line, then with the traceback of the user's own code;
each part without a fault has a line with a remark. The exit code is 2 if there is a fault.
"""

from typing import TYPE_CHECKING

from islands.cli.parsing import Common, one_line
from islands.protocol.errors import UserError
from islands.settings.host import CheckOptions

if TYPE_CHECKING:
    from islands.model.task_check import TaskReport


def run(options: CheckOptions, _: Common) -> int:
    """Check a task; return the exit code."""
    from islands.cli.serve import spec_of
    from islands.model.jax_workload import JaxWorkload
    from islands.model.memory.host_memory import host_memory_bytes
    from islands.model.workload import load_workload

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
    """Print the faults first, then the parts that passed, then those that were skipped."""
    for fault in report.faults:
        print(one_line(fault))
        if fault.detail:
            print(f"\n{fault.detail}")
    for part, remark in report.passed:
        print(f"  {part:10} {remark}")
    for part, reason in report.skipped:
        print(f"  {part:10} {reason}")
    if report.ends:
        print(f"  {'data':10} {report.ends}")
    count = len(report.faults)
    print(f"{task}: " + (f"{count} to mend" if count else "nothing to mend"))
