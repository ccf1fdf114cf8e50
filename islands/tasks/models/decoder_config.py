"""The shape of a decoder, and how it is computed."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from islands.protocol.errors import SettingsError
from islands.settings.groups import above, at_least

Precision = Literal["float32", "bfloat16"]
SIZES = ("vocabulary", "width", "layers", "heads", "kv_heads", "head_width", "hidden")


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
        experts: Number of experts in each layer, which take the place of its feed-forward; 0 for a
            dense layer. Each expert has `hidden`.
        experts_per_token: Number of experts that transform each token.
        balance_weight: Share of the experts' balance loss in the loss that is trained on.
        dtype: Precision of the arithmetic. Norms, rotary positions, the softmax of attention,
            the router and the logits are in float32 in any case. Each host may choose its own.
        param_dtype: Precision in which a learner holds the parameters.
        remat: Whether the activations inside a layer are computed again for the gradient instead
            of being kept: less memory, about a third more arithmetic. Each host may choose.
        scan: Whether the layers are stacked along axis 0 and run by `jax.lax.scan`, which compiles
            one layer for all; the paths of the parameters then bear no layer's number.
    """

    vocabulary: int = 256
    width: int = 128
    layers: int = 3
    heads: int = 4
    kv_heads: int = 1
    head_width: int = 32
    hidden: int = 384
    windows: tuple[int | None, ...] = (None,)
    soft_cap: float = 30.0
    rotary_base: float = 10_000.0
    experts: int = field(default=0, repr=False)  # in `label`, where there are any
    experts_per_token: int = field(default=1, repr=False)
    balance_weight: float = field(default=0.01, repr=False)
    dtype: Precision = field(default="float32", repr=False)
    param_dtype: Precision = field(default="float32", repr=False)
    remat: bool = field(default=False, repr=False)
    scan: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse shapes that cannot be built.

        Raises:
            SettingsError: A setting does not fit; the sentence says which, and what it must be.
        """
        for name in SIZES:
            at_least(name, getattr(self, name), 1)
        if not self.windows:
            raise SettingsError("windows is empty; it must have a number, or null, for a layer")
        for window in self.windows:
            if window is not None:
                at_least("a number in windows", window, 1)
        for name in ("soft_cap", "rotary_base"):
            above(name, getattr(self, name))
        at_least("experts", self.experts, 0)
        if self.heads % self.kv_heads:
            raise SettingsError(f"heads is {self.heads}: no multiple of kv_heads {self.kv_heads}")
        if self.head_width % 2:
            raise SettingsError(f"head_width is {self.head_width}; rotary positions need it even")
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            raise SettingsError(
                f"experts_per_token is {self.experts_per_token}; it must be from 1 to the "
                f"{self.experts} experts"
            )
        for name in ("dtype", "param_dtype"):
            if getattr(self, name) not in get_args(Precision):
                allowed = " or ".join(get_args(Precision))
                raise SettingsError(f"{name} is {getattr(self, name)!r}; it must be {allowed}")

    @property
    def window_of_layers(self) -> tuple[int | None, ...]:
        """The sliding window of each layer."""
        return tuple(self.windows[i % len(self.windows)] for i in range(self.layers))

    @property
    def label(self) -> str:
        """The part that hosts must share, as a text: all but how each of them computes."""
        told = str(self)  # in its form, as a text that names experts only where there are some
        if self.experts:
            chosen = f"{self.experts_per_token} of {self.experts}"
            told += f", experts {chosen}, balance {self.balance_weight}"
        return told

    def stack(self, path: str) -> int:
        """Return how many tensors are stacked in the parameter at a path, which a merge cuts."""
        layers = self.layers if self.scan and path.startswith("layers/") else 1
        return layers * (self.experts if "/experts/" in path else 1)
