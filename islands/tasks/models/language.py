"""A decoder as functions of its parameters: initial values, loss, bits per token, samples.

Parameters are nested dictionaries of arrays, as `flax.nnx.to_pure_dict` makes them. The functions
are jitted with the configuration as a static argument, so equal configurations compile once.
"""

from collections.abc import Iterable, Iterator
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands.protocol.errors import SettingsError
from islands.tasks.data.windows import TokenBatch
from islands.tasks.models.decoder import Decoder
from islands.tasks.models.decoder_config import DecoderConfig

BYTE_VALUES = 256
"""The vocabulary of bytes."""

PIECE_BYTES = 16
"""Tokens, mostly bytes, that are sampled in one call, so that a reader sees them as they come."""


@partial(jax.jit, static_argnums=0)
def initial(config: DecoderConfig, key: PRNGKeyArray) -> PyTree:
    _, params = nnx.split(Decoder(config, rngs=nnx.Rngs(key)))
    return nnx.to_pure_dict(params)


def logits(
    config: DecoderConfig, params: PyTree, tokens: Integer[Array, "b t"]
) -> Float[Array, "..."]:
    model: Decoder = nnx.merge(_graph(config), params)
    return model(tokens)


def nats(
    config: DecoderConfig,
    params: PyTree,
    tokens: Integer[Array, "b t_plus_1"],
    weight: Float[Array, " b"],
) -> Float[Array, ""]:
    """Compute the cross-entropy in nats per token, averaged over positions and weighted rows.

    Inputs are all but the last token of each row, targets all but the first. The weights' sum must
    not be 0.
    """
    tokens = tokens.astype(jnp.int32)
    predicted = logits(config, params, tokens[:, :-1])
    rows = optax.softmax_cross_entropy_with_integer_labels(predicted, tokens[:, 1:]).mean(axis=1)
    return jnp.sum(rows * weight) / jnp.sum(weight)


def bits_per_token(config: DecoderConfig, params: PyTree, batches: Iterable[TokenBatch]) -> float:
    """Compute the mean of −log₂ p(token | those before it in its window), over rows that count.

    Each window starts without context, so the figure is a little above that of a longer context.
    """
    sums = [(_nats(config, params, b.tokens, b.weight), b.predicted) for b in batches]
    total = sum(predicted for _, predicted in sums)
    return sum(float(mean) * predicted for mean, predicted in sums) / total / float(np.log(2))


def sample(
    config: DecoderConfig,
    params: PyTree,
    prompt: bytes,
    count: int,
    *,
    context: int = 128,
    temperature: float = 0.8,
    seed: int = 0,
) -> Iterator[bytes]:
    """Continue a prompt of at least one byte with sampled ones, `PIECE_BYTES` at a time.

    The decoder sees at most `context` of them. Towards a temperature of 0 the likeliest is taken.
    """
    if config.vocabulary > BYTE_VALUES:
        raise SettingsError(
            f"vocabulary is {config.vocabulary}; to sample bytes, it must be at most {BYTE_VALUES}"
        )
    given = np.frombuffer(prompt, np.uint8).astype(np.int32)
    for piece in sample_tokens(
        config, params, given, count, context=context, temperature=temperature, seed=seed
    ):
        yield piece.astype(np.uint8).tobytes()


def sample_tokens(
    config: DecoderConfig,
    params: PyTree,
    prompt: NDArray[np.int32],
    count: int,
    *,
    context: int = 128,
    temperature: float = 0.8,
    seed: int = 0,
) -> Iterator[NDArray[np.int32]]:
    """Continue a prompt with sampled tokens, `PIECE_BYTES` at a time; see `sample`."""
    key = jax.random.key(seed)
    text = prompt[-context:]
    for done in range(0, count, PIECE_BYTES):
        tokens = np.zeros(context + PIECE_BYTES, np.int32)
        tokens[: len(text)] = text
        filled = _continue(
            config, params, jnp.asarray(tokens), len(text), done, context, temperature, key
        )
        found = np.asarray(filled)
        end = len(text) + min(PIECE_BYTES, count - done)
        yield found[len(text) : end]
        text = found[:end][-context:]


_nats = jax.jit(nats, static_argnums=0)


@partial(jax.jit, static_argnums=(0, 5))
def _continue(
    config: DecoderConfig,
    params: PyTree,
    tokens: Integer[Array, " n"],
    start: Integer[Array, ""],
    done: Integer[Array, ""],
    context: int,
    temperature: Float[Array, ""],
    key: PRNGKeyArray,
) -> Integer[Array, " n"]:
    def add(index: Integer[Array, ""], tokens: Integer[Array, " n"]) -> Integer[Array, " n"]:
        end = start + index
        first = jnp.maximum(0, end - context)
        window = jax.lax.dynamic_slice(tokens, (first,), (context,))
        # The zeros right of the end do not matter, as a causal decoder does not attend to them.
        scores = logits(config, params, window[None])[0, end - first - 1]
        drawn = jax.random.categorical(
            jax.random.fold_in(key, done + index), scores / jnp.maximum(temperature, 1e-6)
        )
        return tokens.at[end].set(drawn.astype(tokens.dtype))

    filled: Array = jax.lax.fori_loop(0, PIECE_BYTES, add, tokens)
    return filled


@cache
def _graph(config: DecoderConfig) -> nnx.GraphDef[Decoder]:
    """Make the module's structure without computing any parameter."""
    graph, _ = nnx.split(nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0))))
    return graph
