"""The shape of a decoder and how it is computed, and decoders by name.

There are some from one that a test trains in seconds to one of the size of Gemma 3's 12B::

    decoder: "150M"                                   # in a task's settings
    decoder: {name: "150M", dtype: float32}           # with changes
    decoder: {width: 256, layers: 4}                  # changes of the default, which is "0.6M"

A name is the number of parameters, to within five per cent. Below 2B the vocabulary is bytes; from
there on it is that of Gemma 3, whose embedding is a good part of the model.

Reference: Gemma 3 (2503.19786) §2 and table 1, for the proportions of the large ones.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Annotated, Literal, get_args

import msgspec

from islands.protocol.errors import SettingsError
from islands.protocol.settings.setting import COUNT, POSITIVE, check_ranges

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Shape of a decoder.

    Attributes:
        vocabulary: Number of tokens; bytes have 256.
        width: d, the width of the residual stream.
        layers: Number of layers.
        heads: Number of query heads.
        kv_heads: Number of key and value heads; 1 is multi-query attention.
        head_width: Width of one head; even.
        hidden: Width inside the gated feed-forward.
        windows: Sliding window per layer, repeated as needed; a layer with None sees the whole
            context.
        soft_cap: Bound on the magnitude of the logits.
        rotary_base: Base wavelength of the rotary positions.
        dtype: Precision of the arithmetic. Norms, rotary positions, the softmax of attention
            and the logits are in float32 in any case. Each host may choose its own.
        param_dtype: Precision in which a learner holds the parameters.
        remat: Whether the activations inside a layer are computed again for the gradient instead
            of being kept: less memory, about a third more arithmetic. Each host may choose.
        scan: Whether the layers are stacked along axis 0 and run by `jax.lax.scan`, which compiles
            one layer for all; the paths of the parameters then bear no layer's number.
    """

    vocabulary: Annotated[int, COUNT] = 256
    width: Annotated[int, COUNT] = 128
    layers: Annotated[int, COUNT] = 3
    heads: Annotated[int, COUNT] = 4
    kv_heads: Annotated[int, COUNT] = 1
    head_width: Annotated[int, COUNT] = 32
    hidden: Annotated[int, COUNT] = 384
    windows: Annotated[tuple[int | None, ...], COUNT] = (None,)
    soft_cap: Annotated[float, POSITIVE] = 30.0
    rotary_base: Annotated[float, POSITIVE] = 10_000.0
    dtype: Precision = field(default="float32", repr=False)
    param_dtype: Precision = field(default="float32", repr=False)
    remat: bool = field(default=False, repr=False)
    scan: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.windows:
            raise SettingsError("windows is empty; it must have a number, or null, for a layer")
        if self.heads % self.kv_heads:
            raise SettingsError(f"heads is {self.heads}: no multiple of kv_heads {self.kv_heads}")
        if self.head_width % 2:
            raise SettingsError(f"head_width is {self.head_width}; rotary positions need it even")
        for name in ("dtype", "param_dtype"):
            if getattr(self, name) not in get_args(Precision):
                allowed = " or ".join(get_args(Precision))
                raise SettingsError(f"{name} is {getattr(self, name)!r}; it must be {allowed}")

    @property
    def window_of_layers(self) -> tuple[int | None, ...]:
        return tuple(self.windows[i % len(self.windows)] for i in range(self.layers))

    @property
    def label(self) -> str:
        """The part that hosts must share, as a text: all but how each of them computes."""
        return str(self)

    def stack(self, path: str) -> int:
        """Return how many tensors are stacked in the parameter at a path, which a merge cuts."""
        return self.layers if self.scan and path.startswith("layers/") else 1


# --- decoders by name --------------------------------------------------------------------------

GEMMA_VOCABULARY = 262_144

_SMALL = DecoderConfig()
_MEDIUM = replace(_SMALL, windows=(1024, 1024, 1024, 1024, 1024, None))
_LARGE = replace(_MEDIUM, dtype="bfloat16", remat=True, scan=True)
_HUGE = replace(_LARGE, vocabulary=GEMMA_VOCABULARY)


CONFIGURATIONS: Mapping[str, DecoderConfig] = MappingProxyType(
    {
        name: replace(
            kind,
            width=width,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_width=head_width,
            hidden=hidden,
        )
        for name, kind, width, layers, heads, kv_heads, head_width, hidden in (
            ("0.05M", _SMALL, 48, 2, 3, 1, 16, 80),
            ("0.2M", _SMALL, 80, 3, 5, 1, 16, 192),
            ("0.6M", _SMALL, 128, 3, 4, 1, 32, 384),
            ("2M", _SMALL, 192, 5, 6, 1, 32, 512),
            ("10M", _SMALL, 384, 6, 6, 1, 64, 1152),
            ("50M", _MEDIUM, 768, 8, 6, 1, 128, 2112),
            ("150M", _LARGE, 1024, 12, 8, 2, 128, 3136),
            ("500M", _LARGE, 1536, 18, 12, 4, 128, 4608),
            ("2B", _HUGE, 2304, 22, 8, 4, 256, 7168),
            ("5B", _HUGE, 2816, 34, 16, 8, 256, 10_752),
            ("12B", _HUGE, 3840, 48, 16, 8, 256, 15_360),
        )
    }
)
"""The decoders by name. From 50M on, five layers in six see only the last 1024 tokens; from 150M
on, the layers are scanned, their activations recomputed, and the arithmetic is in bfloat16."""


def decoder_of(given: DecoderConfig | str | Mapping[str, object]) -> DecoderConfig:
    """Return a decoder by itself, by its name, or by changes of a named one or of the default."""
    if isinstance(given, DecoderConfig):
        return given
    if isinstance(given, str):
        return _named(given)
    if not isinstance(given, Mapping):  # as a user's file may have it
        raise SettingsError(f"decoder is {given!r}; it must be a name or a mapping")
    changes = dict(given)
    start = _named(changes.pop("name", "0.6M"))
    known = [one.name for one in fields(DecoderConfig)]
    for name in changes:
        if name not in known:
            raise SettingsError(f"decoder has no setting {name!r}{_near(str(name), known)}")
    try:
        return msgspec.convert({**asdict(start), **changes}, DecoderConfig)
    except msgspec.ValidationError as error:
        raise SettingsError(f"decoder: {error}") from error


def _named(name: object) -> DecoderConfig:
    found = CONFIGURATIONS.get(str(name))
    if found is None:
        allowed = ", ".join(CONFIGURATIONS)
        near = _near(str(name), CONFIGURATIONS)
        raise SettingsError(f"there is no decoder {name!r}{near}; there are {allowed}")
    return found


def _near(name: str, known: Iterable[str]) -> str:
    by_case = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_case, 1, 0.5)
    return f" (did you mean {by_case[found[0]]}?)" if found else ""
