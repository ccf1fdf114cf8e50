"""A real Slurm for tests: munged, one slurmctld and three slurmd, all on this host.

    async with open_room(tmp_path) as room, open_cluster(room) as cluster:
        cluster.ask("sbatch", "--wrap", "hostname")
        await cluster.kill_node("n2")

It needs `tests/install_debian.sh`, and root, as slurmd starts jobs for their users.
Daemons run in the foreground as programs of the room, which ends them. Processes of jobs outlive
their slurmd, so they are found by the name of their node in their environment.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from islands.lab.faults.proxy import HOST, free_port
from islands.run.hosting.process_identity import Identity, facts, send_signal
from tests.integration.programs import Program, Room, clean_environment

DAEMONS = ("munged", "slurmctld", "slurmd")
NODES = ("n1", "n2", "n3")
CPUS = 4
READY_S = 60.0
ASK_S = 30.0
LOOKS_MAX = 20

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU,CR_LLN
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SlurmdTimeout=5
MessageTimeout=5
KillWait=20
MinJobAge=600
SchedulerParameters=bf_interval=2,sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""
"""A lost node is found within 20 s, and its jobs may begin again 5 s later; usual are minutes."""


def missing() -> str | None:
    if os.geteuid() != 0:
        return "slurmd starts jobs for their users, so this test needs root"
    tools = [name for name in DAEMONS if shutil.which(name) is None]
    return f"there is no {tools[0]} command (tests/install_debian.sh)" if tools else None


@dataclass(slots=True)
class SlurmCluster:
    """Daemons of one cluster: in `nodes`, the slurmd of each node that runs."""

    room: Room
    folder: Path
    nodes: dict[str, Program] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    async def open(self) -> None:
        """Start all daemons, and wait until every node is idle."""
        self.folder.mkdir()
        for name in ("state", *NODES):
            (self.folder / name).mkdir()
        port = free_port()
        (self.folder / "slurm.conf").write_text(self._configuration(port))
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.folder / "munge.key").chmod(0o600)
        paths = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        files = (f"--{option}={self.folder}/munge.{end}" for option, end in paths.items())
        key = f"--key-file={self.folder}/munge.key"
        self._start("munged", "--foreground", "--force", "--num-threads=2", key, *files)
        await self.room.wait((self.folder / "munge.socket").exists, READY_S)
        self._start("slurmctld", "-D")
        for name in NODES:
            self.start_node(name)
        await self.wait_idle()

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node; what it starts inherits the node's name, as jobs have it."""
        words, told = ("slurmd", "-D", "-N", name), {"SLURMD_NODENAME": name}
        self.nodes[name] = self.room.start_words(words, environment={**self.environment, **told})

    async def wait_idle(self, names: tuple[str, ...] = NODES) -> None:
        """Wait until these nodes can take jobs."""
        await self.room.wait(lambda: set(names) <= self._usable(), READY_S)

    def _usable(self) -> set[str]:
        told = self.ask("sinfo", "--noheader", "--Node", "--format=%N %t").splitlines()
        states = dict(line.split() for line in told)
        return {name for name, state in states.items() if state in ("idle", "mix", "alloc")}

    def ask(self, *words: str) -> str:
        """Run a command of Slurm to its end; return what it printed."""
        ended = subprocess.run(
            words,
            cwd=self.room.folder,
            env=clean_environment(self.environment),
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=False,
        )
        return ended.stdout + ended.stderr

    def jobs(self) -> str:
        return self.ask("squeue", "--noheader", "--format=%i %j %T %r %N")

    async def kill_node(self, name: str) -> None:
        """Kill a node's slurmd and all processes of its jobs, as if at the same moment."""
        slurmd = self.nodes.pop(name)
        self._kill(name)
        await self.room.ended(slurmd)

    def close(self) -> None:
        """Kill all nodes; the room ends the other daemons."""
        self.nodes.clear()
        for name in NODES:
            self._kill(name)

    def _kill(self, node: str) -> None:
        """Suspend all processes before the first is killed, so that none tells of another's end."""
        stopped: list[Identity] = []
        for _ in range(LOOKS_MAX):  # a process may start another while it is looked for
            found = [one for one in self._processes_of(node) if one not in stopped]
            for identity in found:
                send_signal(identity, signal.SIGSTOP)
            stopped += found
            if not found:
                break
        for identity in stopped:
            send_signal(identity, signal.SIGKILL)

    def _processes_of(self, node: str) -> list[Identity]:
        mine = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        found: list[Identity] = []
        for place in Path("/proc").glob("[0-9]*"):
            known = facts(int(place.name))
            try:
                words = (place / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            if known is None or known.zombie or mine not in words:
                continue
            if f"SLURMD_NODENAME={node}".encode() in words:
                found.append(Identity(int(place.name), known.started_ticks))
        return found

    def _configuration(self, port: int) -> str:
        host = socket.gethostname()
        lines = [CONFIGURATION.format(host=host, address=HOST, port=port, folder=self.folder)]
        net = f"127.{port >> 8}.{port & 255}"  # islands of several hosts listen at a port of theirs
        lines += [
            f"NodeName={name} NodeHostname={host} NodeAddr={net}.{number} Port={free_port()} "
            f"CPUs={CPUS}"
            for number, name in enumerate(NODES, 1)
        ]
        return "\n".join(lines) + "\n"

    def _start(self, *words: str) -> Program:
        return self.room.start_words(words, environment=self.environment)


@contextlib.asynccontextmanager
async def open_cluster(room: Room) -> AsyncIterator[SlurmCluster]:
    """Open a cluster in a room, which ends its daemons; processes of jobs end with the block."""
    cluster = SlurmCluster(room, room.folder / "slurm")
    try:
        await cluster.open()
        yield cluster
    finally:
        cluster.close()
