"""The model of a run's newest values: its task, and the values in the form that the task takes."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from islands.model.workload import Workload, load_workload
from islands.run.hosting.hub_address import task_folders_of
from islands.run.hosting.process_runtime import compiled_folder
from islands.run.records.run_values import RunValues
from islands.run.warm_start import fitted
from islands.settings.run_spec import RunSpec
from islands.tasks.factory import search


@dataclass(frozen=True, slots=True)
class RunModel:
    """A workload with the values that it evaluates.

    Args:
        spec: the run's settings, with the task that was loaded.
        workload: the task.
        values: one flat value per fragment of the workload's own layout.
        differs: how the task's layout differs from the run's though the values fit, such as by the
            digest of the corpus; empty if it does not.
    """

    spec: RunSpec
    workload: Workload
    values: list[NDArray[np.float32]]
    differs: str


def model_of(found: RunValues, task: str | None, overrides: dict[str, object]) -> RunModel:
    """Load a run's task, and fit the run's values to it.

    The task and its data are searched for in the folders of this process first, then in those in
    which the run's hub found them.

    Args:
        found: the run's values.
        task: the task that replaces the run's, by name; None for the run's.
        overrides: arguments of its factory that replace those of the run.

    Raises:
        TaskError: the task cannot be imported or made.
        UserError: its parameters have other names or shapes than the values.
    """
    spec = found.spec if task is None else replace(found.spec, task=task)
    search(task_folders_of(found.folder))
    workload = load_workload(spec, overrides)
    workload.keep_compiled(compiled_folder())
    layout = workload.plan(spec.settings).layout
    values = fitted(found.arrays, layout, found.source)
    differs = ""
    if layout.fingerprint != found.fingerprint:
        told = None if found.plan is None else layout.first_difference(found.plan.layout)
        differs = told or "the layouts have unlike fingerprints"
    return RunModel(spec, workload, values, differs)
