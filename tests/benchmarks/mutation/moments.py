"""Second moments: the share that merging leaves, and the decays of an optimizer."""

from tests.benchmarks.mutation.kind import Mutation

SECOND_MOMENTS = ("tests/model/test_second_moments.py",)

MOMENTS = (
    Mutation(
        "an optimizer is not asked for its decays far ahead",
        "islands/model/second_moments.py",
        "probes.append(_probed(make(), small, PROBES[0], LATE_STEPS))",
        "probes.append(_probed(make(), small, PROBES[0]))",
        SECOND_MOMENTS,
    ),
    Mutation(
        "a second moment is that of merges, whatever the learner's own is",
        "islands/model/second_moments.py",
        "kept.merged / jnp.where(below, kept.alone, 1), 1)",
        "1.0, 1)",
        SECOND_MOMENTS,
    ),
    Mutation(
        "the noise that all learners begin with is taken for the learner's own",
        "islands/model/second_moments.py",
        "own_scale * own_change - back * scale * change",
        "own_scale * own_change",
        SECOND_MOMENTS,
    ),
    Mutation(
        "work since the contribution is compared with what was merged",
        "islands/model/jax_trainer.py",
        "model.base[fragment], self._contributed(fragment, sent)",
        "model.base[fragment], self._contributed(fragment, None)",
        SECOND_MOMENTS,
    ),
    Mutation(
        "second moments that are hidden from a probe are told to nobody",
        "islands/model/compiled_steps.py",
        "return tuple(path for path in beside if path not in estimated)",
        "return tuple(path for path in beside if path not in shapes)",
        ("tests/model/test_task_check.py",),
    ),
    Mutation(
        "what an optimizer keeps counts for no memory",
        "islands/model/jax_workload.py",
        "moments=_bytes_of((moments, carried)),",
        "moments=_bytes_of(carried),",
        ("tests/model/test_merged_moments.py",),
    ),
)
