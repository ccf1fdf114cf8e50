"""What each host's link carries of an island's values: real actors, simulated links, virtual time.

    python -m tests.benchmarks.host_shares [--megabits 2]

Islands of 1, 2 and 4 hosts train beside a learner on one host. *Up* and *down* are the bytes of
values that a host sent to the syncer and was sent by it, *of all* is that of the learner on one
host. *Exchange* is the mean time from a pull to the arrival of the island's answer, where every
link has the given bandwidth. *Same* tells whether all merges are those of one host, to the bit,
where links are so wide that no time differs.
"""

import argparse
from statistics import mean

from rich.console import Console
from rich.table import Table

from islands.protocol.settings.choices import Precision
from messaging.simulation.network import Route
from tests.island.island_run import ISLAND, Found, play
from tests.island.simulated_island import host_name

OWNERS = {"1": (0,), "2": (0, 1), "2, interleaved": (0, 1, 0, 1), "4": (0, 1, 2, 3)}


def exchange_s(found: Found) -> float:
    """The mean time from a round's opening to the arrival of the island's answer."""
    opened = {line["round"]: float(str(line["at_s"])) for line in found.of("opened")}
    times = []
    for line in found.of("arrived"):
        name, _, round_ = str(line["ticket"]).rpartition(":")
        if name.startswith(f"{ISLAND}/"):
            times.append(float(str(line["at_s"])) - opened[int(round_)])
    return mean(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabits", type=float, default=2.0)
    narrow = Route(0.005, bandwidth_bytes_per_s=parser.parse_args().megabits * 1e6 / 8)
    table = Table(title="values of an island, by host")
    for title in ("precision", "hosts", "host", "up", "of all", "down", "exchange", "same"):
        table.add_column(title)
    for precision in (Precision.FLOAT32, Precision.BFLOAT16):
        one = play((0,), precision)
        for name, owners in OWNERS.items():
            found, times = play(owners, precision), play(owners, precision, route=narrow)
            for rank in range(max(owners) + 1):
                host = host_name(ISLAND, rank)
                up = found.sent[host]
                first = ("", "") if rank else (f"{exchange_s(times):.3f} s", "no")
                same = "yes" if found.merges == one.merges and not rank else first[1]
                told = (f"{up:,}", f"{up / one.sent[ISLAND]:.3f}", f"{found.received[host]:,}")
                table.add_row(precision.value, name, str(rank), *told, first[0], same)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
