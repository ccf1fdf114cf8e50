"""Second moments: the share that merging leaves, and the decays of an optimizer."""

from tests.benchmarks.mutation.kind import Mutation

SECOND_MOMENTS = ("tests/training/test_second_moments.py",)

MOMENTS = (
    Mutation(
        "an optimizer is not asked for its decays far ahead",
        "islands/training/second_moments.py",
        "probes.append(_probed(make(), small, PROBES[0], LATE_STEPS))",
        "probes.append(_probed(make(), small, PROBES[0]))",
        SECOND_MOMENTS,
    ),
    Mutation(
        "a second moment is that of merges, whatever the learner's own is",
        "islands/training/second_moments.py",
        "kept.merged / jnp.where(below, kept.alone, 1), 1)",
        "1.0, 1)",
        SECOND_MOMENTS,
    ),
    Mutation(
        "the noise that all learners begin with is taken for the learner's own",
        "islands/training/second_moments.py",
        "own_scale * own_change - back * scale * change",
        "own_scale * own_change",
        SECOND_MOMENTS,
    ),
    Mutation(
        "work since the contribution is compared with what was merged",
        "islands/training/jax_trainer.py",
        "model.base[fragment], self._contributed(fragment, sent)",
        "model.base[fragment], self._contributed(fragment, None)",
        SECOND_MOMENTS,
    ),
)
