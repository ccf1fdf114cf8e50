"""The program of JAX that the processes of an island form together."""

import os
from collections.abc import Mapping

from islands.protocol.errors import SettingsError

LEFT_BY_OTHERS = (
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "JAX_LOCAL_DEVICE_IDS",
    "MEGASCALE_COORDINATOR_ADDRESS",
    "MEGASCALE_NUM_SLICES",
    "MEGASCALE_SLICE_ID",
)
"""Variables of other launchers, which JAX would take for the topology of its program."""

HEARTBEAT_S = 30
"""JAX ends a process whose siblings are silent for so long; ours are found before (`health.py`)."""

CONNECT_S = 120


def check_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse variables that another launcher has left, as they contradict this island's topology.

    Raises:
        SettingsError: one is set; the sentence names it.
    """
    left = [name for name in LEFT_BY_OTHERS if environment.get(name)]
    if left:
        raise SettingsError(
            f"{left[0]} is set in the environment, by another launcher; an island's hosts are "
            "told by --hosts, --rank and --island_address: unset it"
        )


def begin_program(coordinator: str, *, hosts: int, rank: int) -> None:
    """Connect this process with those of the other hosts; returns once all are connected.

    Args:
        coordinator: host:port at which rank 0 serves JAX's coordinator.
        hosts: number of hosts.
        rank: rank of this one.

    Raises:
        RuntimeError: not all of them came in time.
    """
    os.environ.setdefault("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "gloo")
    os.environ["JAX_ENABLE_PREEMPTION_SERVICE"] = "false"  # it would take SIGTERM for itself
    import jax

    jax.distributed.initialize(
        coordinator_address=coordinator,
        cluster_detection_method="deactivate",  # it would choose devices by a cluster's variables
        num_processes=hosts,
        process_id=rank,
        coordinator_bind_address=coordinator if rank == 0 else None,
        initialization_timeout=CONNECT_S,
        heartbeat_timeout_seconds=HEARTBEAT_S,
    )
