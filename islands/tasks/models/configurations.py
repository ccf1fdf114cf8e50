"""Decoders by name, from one that a test trains in seconds to one of the size of Gemma 3's 12B.

    decoder: "150M"                                   # in a task's settings
    decoder: {name: "150M", dtype: float32}           # with changes
    decoder: {width: 256, layers: 4}                  # changes of the default, which is "0.6M"

A name is the number of parameters, to within five per cent. Below 2B the vocabulary is bytes; from
there on it is that of Gemma 3, whose embedding is a good part of the model.

Reference: Gemma 3 (2503.19786) §2 and table 1, for the proportions of the large ones.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from types import MappingProxyType

import msgspec

from islands.protocol.errors import SettingsError
from islands.tasks.models.decoder_config import DecoderConfig

GEMMA_VOCABULARY = 262_144

_SMALL = DecoderConfig()
_MEDIUM = replace(_SMALL, windows=(1024, 1024, 1024, 1024, 1024, None))
_LARGE = replace(_MEDIUM, dtype="bfloat16", remat=True, scan=True)
_HUGE = replace(_LARGE, vocabulary=GEMMA_VOCABULARY, head_width=256)


def _of(
    kind: DecoderConfig, *, width: int, layers: int, heads: tuple[int, int], head: int, hidden: int
) -> DecoderConfig:
    """Give a kind its size; `heads` are those of queries and those of keys and values."""
    query, key = heads
    return replace(
        kind,
        width=width,
        layers=layers,
        heads=query,
        kv_heads=key,
        head_width=head,
        hidden=hidden,
    )


CONFIGURATIONS: Mapping[str, DecoderConfig] = MappingProxyType(
    {
        "0.05M": _of(_SMALL, width=48, layers=2, heads=(3, 1), head=16, hidden=80),
        "0.2M": _of(_SMALL, width=80, layers=3, heads=(5, 1), head=16, hidden=192),
        "0.6M": _SMALL,
        "2M": _of(_SMALL, width=192, layers=5, heads=(6, 1), head=32, hidden=512),
        "10M": _of(_SMALL, width=384, layers=6, heads=(6, 1), head=64, hidden=1152),
        "50M": _of(_MEDIUM, width=768, layers=8, heads=(6, 1), head=128, hidden=2112),
        "150M": _of(_LARGE, width=1024, layers=12, heads=(8, 2), head=128, hidden=3136),
        "500M": _of(_LARGE, width=1536, layers=18, heads=(12, 4), head=128, hidden=4608),
        "2B": _of(_HUGE, width=2304, layers=22, heads=(8, 4), head=256, hidden=7168),
        "5B": _of(_HUGE, width=2816, layers=34, heads=(16, 8), head=256, hidden=10_752),
        "12B": _of(_HUGE, width=3840, layers=48, heads=(16, 8), head=256, hidden=15_360),
    }
)
"""The decoders by name. From 50M on, five layers in six see only the last 1024 tokens; from 150M
on, the layers are scanned, their activations recomputed, and the arithmetic is in bfloat16."""


def decoder_of(given: DecoderConfig | str | Mapping[str, object]) -> DecoderConfig:
    """Return the decoder that a task's settings describe.

    Args:
        given: a configuration; its name; or changes of the one that `name` says, or of the default.

    Raises:
        SettingsError: there is no such name or setting, or a value does not fit.
    """
    if isinstance(given, DecoderConfig):
        return given
    if isinstance(given, str):
        return _named(given)
    if not isinstance(given, Mapping):  # as a user's file may have it
        raise SettingsError(f"decoder is {given!r}; it must be a name or a mapping")
    changes = dict(given)
    start = _named(changes.pop("name", "0.6M"))
    known = [field.name for field in fields(DecoderConfig)]
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
