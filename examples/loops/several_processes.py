"""The functional loop as several processes of one program of JAX, on one host or many.

    python -m islands.syncer --run.budget_tokens 400000
    python -m examples.loops.several_processes 127.0.0.1:7070 ana 127.0.0.1:7171 127.0.0.1:7272 2 0
    python -m examples.loops.several_processes 127.0.0.1:7070 ana 127.0.0.1:7171 127.0.0.1:7272 2 1

The words are the hub's address, the learner's name, where process 0 serves Islands and where it
serves JAX, the number of processes, and which of them this is. Each process reads its own rows of
the batch that is leased to all. Only the lines marked with ★ are Islands'.
"""

import signal
import sys

import jax
from jax.sharding import NamedSharding, PartitionSpec

import islands  # ★
from examples.loops.functional import OPTIMIZER, RECORDS, ROWS, batch_of, initial, train_step


def main(address: str, name: str | None = None, island_address: str | None = None) -> None:
    """Train until the run is over, or one of the processes is asked to end."""
    processes = jax.process_count()
    mesh = jax.make_mesh((processes, jax.local_device_count()), ("data", "model"))
    cut = NamedSharding(mesh, PartitionSpec(None, None, "model"))
    whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    params = jax.jit(initial, out_shardings={"layers": cut, "out": whole})()
    moments = OPTIMIZER.init(params)
    with (
        jax.set_mesh(mesh),
        islands.join(  # ★
            *(address, params),
            optimizer=moments,
            tokens_per_step=ROWS,
            stacked=lambda path: path.startswith("layers"),
            records=RECORDS,
            name=name,
            island_address=island_address,
        ) as run,
    ):
        signal.signal(signal.SIGTERM, lambda *_: run.leave("SIGTERM"))  # ★
        state = {"params": run.params, "moments": run.optimizer}  # ★
        loss, step = None, 0
        first, count = jax.process_index() * ROWS // processes, ROWS // processes
        batches = run.batches(lambda all_: batch_of(all_[first : first + count]), ROWS)  # ★
        while not run.over:  # ★
            state["params"] = run.boundary(  # ★
                state["params"], loss, optimizer=state["moments"]
            )
            state["moments"] = run.optimizer  # ★
            if run.over:  # ★
                break  # ★
            batch = [jax.make_array_from_process_local_data(rows, x) for x in next(batches)]
            state, loss = train_step(state, (batch[0], batch[1]))
            step += 1
    print(f"{step} steps, loss {float(loss or 0):.4f}; {run.why}")


if __name__ == "__main__":
    jax.distributed.initialize(sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
    main(*sys.argv[1:4])
