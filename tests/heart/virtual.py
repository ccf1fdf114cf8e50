"""The default on the virtual clock, under the conditions of a busy host: the same on each machine.

Steps are unsteady and unequal, and exchanges take as long as copies and other processes make them;
the run is short. It shows at once what a change of a rule costs, without a clock's noise.
"""

from islands.lab.settings.study import StudyOptions
from islands.lab.study.cells import trials_of
from islands.lab.study.trial import Result, play
from islands.protocol.settings.run import RunSettings

TOKENS = 250_000
BITS = 3.1477
"""Bits per byte at which this run ends; who changes it by a rule says why in the commit."""
WITHIN = 0.01
PARTICIPATION = 0.9


def busy() -> Result:
    """Train four unequal learners with the default's settings, and evaluate."""
    options = StudyOptions(
        task="islands.tasks.stdlib_bytes:StdlibBytes",
        task_settings={"rows": 4, "length": 128},
        tokens=TOKENS,
        seeds=(0,),
        run=RunSettings(learning_rate=1e-2),
        cells={
            "busy": {
                "learners": 4,
                "preset": "decoupled",
                "speeds": [1.0, 1.0, 1.1, 1.3],
                "noise": 0.4,
                "latency_s": 0.03,
            }
        },
    )
    (trial,) = trials_of(options)
    return play(trial)


def broken(result: Result) -> list[str]:
    bits, told = result.metric("val_bits_per_byte"), []
    if not abs(bits - BITS) <= WITHIN * BITS:
        told.append(f"the virtual run ends at {bits:.4f} bits per byte, pinned are {BITS}")
    if result.participation < PARTICIPATION:
        told.append(f"{result.participation:.2f} of learners took part, not {PARTICIPATION}")
    return told
