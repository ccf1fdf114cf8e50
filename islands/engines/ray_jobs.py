"""What is known of an island's actors, and what follows from it: pure.

===================================================  ===========================================
the hosts of an island                               its job
===================================================  ===========================================
have no actor that runs yet, or not all of them      waits, with what Ray's nodes lack
have begun                                           runs
have been asked to end                               is ending, until the last of them has ended
have one that was lost, or whose command has failed  has ended, as the first of these has
have all ended                                       has ended
===================================================  ===========================================
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from islands.engines.engine import Job, JobState
from islands.protocol.errors import DONE

WORDS_MAX = 400
KILLED = "killed by `ray.kill`"
KIND = "accelerator_type:"
"""Begins Ray's name of the resource that a node has which has accelerators of a kind."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Request:
    """What each host of an island is to have.

    Args:
        hosts: number of hosts.
        resources: CPU, GPU, memory (bytes) and others, by Ray's names.
        labels: selectors of nodes' labels.
        script: what each host runs.
        environment: its variables, secrets included.
    """

    hosts: int
    resources: dict[str, float]
    labels: dict[str, str]
    script: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Began:
    """Where an actor runs."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command of a host has ended.

    `code` is None where the actor was lost with its command.
    """

    code: int | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Rank:
    """What is known of one host of an island."""

    began: Began | None = None
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster that is alive, by what it has in all."""

    name: str
    resources: dict[str, float]
    labels: dict[str, str]


def job_of(
    island: str,
    job: str,
    placed: Request,
    ranks: Sequence[Rank],
    nodes: Mapping[str, Node],
    *,
    asked: bool,
) -> Job:
    """Return an island's job. Hosts that are lost or have failed end the whole island.

    Args:
        island: its name.
        job: the job's name.
        placed: what each host was to have.
        ranks: its hosts; one without an end has an actor that lives.
        nodes: nodes that are alive, by their ids.
        asked: whether it was asked to end, so that each of its hosts takes the time that it needs.
    """
    ends = sorted((rank.ended for rank in ranks if rank.ended is not None), key=_rank_of_cause)
    if len(ends) == len(ranks) or (ends and ends[0].code != DONE and not asked):
        why, code = ends[0].words, ends[0].code
        return Job(island, job, JobState.ENDED, why=why, code=code, cancelled=asked)
    begun = [rank.began for rank in ranks if rank.began is not None]
    where = ", ".join(nodes[each.node].name for each in begun if each.node in nodes)
    if asked:
        return Job(island, job, JobState.ENDING, where)
    if len(begun) == len(ranks):
        return Job(island, job, JobState.RUNNING, where)
    return Job(island, job, JobState.WAITING, why=why_waiting(placed, list(nodes.values())))


def _rank_of_cause(end: Ended) -> int:
    """Return 0 for a host that was lost, 1 for a failure, 2 for one that was killed, 3 for none.

    Where one host is lost or fails, the others are killed for it.
    """
    if KILLED in end.words:
        return 2
    return {None: 0, DONE: 3}.get(end.code, 1)


def why_waiting(placed: Request, nodes: Sequence[Node]) -> str:
    """Return why an island has no place: no node has what it needs, or others use it."""
    own = [_amount(name, n) for name, n in placed.resources.items()]
    told = ", ".join([*own, *(f"{key}={value}" for key, value in placed.labels.items())])
    fitting, hosts = sum(_fits(placed, node) for node in nodes), placed.hosts
    if fitting < hosts:
        needs = "a node" if hosts == 1 else f"{hosts} nodes"
        return f"pending: it needs {needs} with {told}; {fitting} of {len(nodes)} are so"
    return f"pending: {told} is in use, or its actor is just being started"


def _fits(placed: Request, node: Node) -> bool:
    enough = all(
        node.resources.get(name, 0.0) >= n - _ROUNDING for name, n in placed.resources.items()
    )
    return enough and all(_selects(v, node.labels.get(k)) for k, v in placed.labels.items())


def _selects(selector: str, label: str | None) -> bool:
    return label != selector[1:] if selector.startswith("!") else label == selector


def _amount(name: str, number: float) -> str:
    if name.startswith(KIND):
        return name.removeprefix(KIND)
    return f"{name} {number / 2**30:g} GiB" if name == "memory" else f"{name} {number:g}"


def words_of(error: BaseException) -> str:
    """Return what an error of Ray says, without the list of the actor's properties."""
    lines = str(error).splitlines()
    own = [line for line in lines if not line.startswith("\t")]
    several = len(own) > 1 and own[0].startswith("The actor died")
    told = " ".join(" ".join(own[1:] if several else own).split())
    return (told.partition(" Some common causes")[0] or type(error).__name__)[:WORDS_MAX]


def options_of(request: Request) -> dict[str, Any]:
    """Return the options of an actor of Ray, which is never restarted by Ray itself."""
    own = dict(request.resources)
    return {
        "num_cpus": own.pop("CPU", 0),
        "num_gpus": own.pop("GPU", 0),
        "memory": own.pop("memory", None),
        "resources": own,
        "max_restarts": 0,
        "max_task_retries": 0,
        "lifetime": "detached",
    }
