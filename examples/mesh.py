"""Learners that each have several devices: prints who computes where, trains, prints the figures.

    python examples/mesh.py                          one learner on all devices
    python examples/mesh.py --model-parallel 2       large tensors cut in two
    python examples/mesh.py --learners 2             two learners, each with half of the devices

Without an accelerator the CPU passes for eight devices, which shows how it works and is slow.
"""

import argparse
import asyncio
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import jax

from islands import LocalSystem, run_settings
from islands.model.placement import placed, shares
from islands.protocol.errors import UserError
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes

MODEL = DecoderConfig(width=128, layers=2, heads=4, hidden=512)


def main() -> None:
    """Parse, show the placement, run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--learners", type=int, default=1)
    parser.add_argument("--model-parallel", type=int, default=1)
    parser.add_argument("--rows", type=int, default=8, help="of each batch, over all devices")
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--cpu-devices", type=int, default=8, help="where there is nothing else")
    chosen = parser.parse_args()

    jax.config.update("jax_num_cpu_devices", chosen.cpu_devices)
    each = jax.local_device_count() // chosen.learners
    task = StdlibBytes(MODEL, rows=chosen.rows, length=64, validation_windows=64)
    settings = run_settings(budget_tokens=chosen.tokens)
    try:
        system = LocalSystem(
            task,
            settings,
            learners=chosen.learners,
            devices_per_learner=each,
            model_parallel=chosen.model_parallel,
        )
        show(system, each, chosen.model_parallel)
        with TemporaryDirectory() as folder:
            summary = asyncio.run(system.run(Path(folder)))
    except UserError as error:
        parser.error(str(error))
    for name in ("tokens", "wall_s", "goodput", "merges", "val_bits_per_byte"):
        print(f"{name:<18}{summary[name]:.6g}")
    ledger = summary["ledger"]
    assert isinstance(ledger, dict), "a summary has a ledger"
    print(f"{'imbalance':<18}{ledger['imbalance']} tokens without a fate")


def show(system: LocalSystem, each: int, model_parallel: int) -> None:
    """Which devices each learner has, and how its tensors are cut."""
    for name, devices in zip(system.names, shares(len(system.names), each), strict=True):
        place = placed(devices, model_parallel)
        grid = "one device" if place.mesh is None else str(dict(place.mesh.shape))
        print(f"{name}: {grid} of {', '.join(map(str, place.devices))}")
    leaves = system.model.layout.leaves
    cuts = Counter("whole" if place.tensor(x.shape) == place.whole else "cut" for x in leaves)
    print(f"tensors: {cuts['cut']} cut over 'model', {cuts['whole']} whole on each device")


if __name__ == "__main__":
    main()
