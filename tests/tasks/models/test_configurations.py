"""Decoders by name are of the size that their name says, and mistaken names are told."""

import jax
import pytest

from islands.protocol.errors import SettingsError
from islands.tasks.models.decoder_config import CONFIGURATIONS, DecoderConfig, decoder_of
from islands.tasks.models.language import initial
from islands.tasks.stdlib_bytes import StdlibBytes
from tests.tasks.by_name import task_of

SIZES = ("vocabulary", "width", "layers", "heads", "kv_heads", "head_width", "hidden")

TASK = "islands.tasks.stdlib_bytes:StdlibBytes"


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_name_is_the_number_of_parameters(name: str) -> None:
    """Within five per cent, by shapes alone, so that none of them is allocated."""
    shape = CONFIGURATIONS[name]
    shapes = jax.eval_shape(lambda: initial(shape, jax.random.key(0)))
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    stated = float(name[:-1]) * {"M": 1e6, "B": 1e9}[name[-1]]
    assert abs(count / stated - 1) < 0.05


def test_a_task_takes_a_name_or_changes_of_one() -> None:
    assert decoder_of("0.6M") == DecoderConfig()
    assert task_of(TASK, {"decoder": "2M"}) == StdlibBytes(CONFIGURATIONS["2M"])
    changed = task_of(TASK, {"decoder": {"name": "0.2M", "windows": [8, None], "scan": True}})
    assert isinstance(changed, StdlibBytes)
    assert changed.model.windows == (8, None)
    assert changed.model.width == CONFIGURATIONS["0.2M"].width
    assert hash(changed) == hash(task_of(TASK, {"decoder": changed.model}))
    assert decoder_of({"layers": 2}) == DecoderConfig(layers=2)


def test_a_mistaken_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(
        SettingsError, match=r"no decoder '150m' \(did you mean 150M\?\); there are"
    ):
        decoder_of("150m")
    with pytest.raises(SettingsError, match=r"no decoder 'gpt'; there are 0.05M, 0.2M"):
        task_of(TASK, {"decoder": {"name": "gpt"}})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"widht": 3}, r"no setting 'widht' \(did you mean width\?\)"),
        ({"width": "wide"}, r"Expected `int`, got `str` - at `\$.width`"),
        ({"dtype": "half"}, "dtype|half"),
        ({"param_dtype": "half"}, "param_dtype|half"),
        ({"heads": 4, "kv_heads": 3}, "no multiple of kv_heads"),
        ({"head_width": 7}, "head_width is 7; rotary positions need it even"),
        *(({name: 0}, f"{name} is 0; it must be at least 1") for name in SIZES),
        ({"kv_heads": -1}, "kv_heads is -1; it must be at least 1"),
        ({"windows": []}, "windows is empty; it must have a number, or null"),
        ({"windows": [None, 0]}, "windows is 0; it must be at least 1"),
        ({"soft_cap": 0.0}, "soft_cap is 0.0; it must be above 0"),
        ({"soft_cap": float("nan")}, "soft_cap is nan; it must be above 0"),
        ({"rotary_base": -1.0}, "rotary_base is -1.0; it must be above 0"),
    ],
)
def test_a_mistaken_change_is_told(given: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        decoder_of(given)


@pytest.mark.parametrize("given", [3, 0.6, None, ["2M"], True])
def test_what_is_neither_a_name_nor_a_mapping_is_refused(given: object) -> None:
    with pytest.raises(SettingsError, match=r"decoder is .*; it must be a name or a mapping"):
        decoder_of(given)  # type: ignore[arg-type]  # as a file has it


def test_the_smallest_decoder_can_be_built() -> None:
    config = decoder_of({**dict.fromkeys(SIZES, 1), "head_width": 2, "windows": [1]})
    shapes = jax.eval_shape(lambda: initial(config, jax.random.key(0)))
    assert all(leaf.size > 0 for leaf in jax.tree.leaves(shapes))
