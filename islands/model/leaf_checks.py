"""Refusals of leaves that a user's own loop hands in, and the devices on which the others are.

A leaf is on one device, or on a mesh of one or several processes, in any way that a `NamedSharding`
has; all leaves of a model are on the same. What a boundary cannot read there, or not write back as
it was, is refused in a sentence that says how to mend it.
"""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding
from jaxtyping import Array

from islands.layout.leaves import Leaf
from islands.model.device_transfer import cut_of
from islands.model.placement import Placement
from islands.protocol.errors import TaskError

BYTE_BITS = 8


def placement_of(leaves: Mapping[str, Array]) -> Placement:
    """Return the devices on which all these leaves are."""
    for path, leaf in leaves.items():
        check_leaf(path, leaf)
    first, leaf = next(iter(leaves.items()))
    placement = place_of(leaf.sharding)
    for path, other in leaves.items():
        check_placement(path, other, placement, first)
    return placement


def place_of(sharding: Sharding) -> Placement:
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        return Placement(tuple(sharding.mesh.devices.flat), sharding.mesh)
    return Placement(tuple(sharding.device_set), None)


def check_leaf(path: str, leaf: object) -> None:
    """Refuse a leaf that a boundary cannot read, or not write back as it was."""
    leaf = check_array(path, leaf)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise TaskError(
            f"{path} is {leaf.dtype}: only floating leaves have an average; leave it out of those "
            "that are handed in"
        )
    if jnp.finfo(leaf.dtype).bits < BYTE_BITS:  # type: ignore[no-untyped-call]
        raise TaskError(
            f"{path} is {leaf.dtype}, and its elements are smaller than a byte: hand in the leaf "
            "of a wider type from which it was made"
        )
    check_stored(path, leaf)


def check_array(path: str, leaf: object) -> Array:
    """Return a leaf, if it is an array whose buffers are there."""
    if isinstance(leaf, jax.core.Tracer):
        raise TaskError(
            f"{path} is being traced and has no value: call this between two steps, outside of "
            "jax.jit and of other transformations"
        )
    if not isinstance(leaf, jax.Array):
        kind = type(leaf).__name__
        raise TaskError(f"{path} is a {kind}, which is on no device: call jax.device_put first")
    check_alive(path, leaf)
    return leaf


def check_stored(path: str, leaf: Array) -> None:
    if not leaf.sharding.addressable_devices:
        raise TaskError(
            f"{path} has no part on a device of this process, which so has nothing to exchange: "
            "put it on devices of all processes that call this (jax.devices())"
        )
    _check_sharding(path, leaf.sharding)
    check_even(path, leaf.shape, leaf.sharding)


def check_alive(path: str, leaf: Array) -> None:
    if leaf.is_deleted():
        raise TaskError(
            f"{path} was deleted: it was donated to a step; hand in what the step returned"
        )


def check_placement(path: str, leaf: Array, placement: Placement, like: str) -> None:
    """Refuse a leaf that is elsewhere than the others."""
    found = place_of(leaf.sharding)
    if found.key == placement.key:
        return
    if found.alone != placement.alone:
        one, others = (path, like) if found.alone else (like, path)
        raise TaskError(
            f"{one} is on devices of this process alone, but {others} on those of several "
            f"processes: put {one} on the mesh of {others} in each of them, such as with "
            "jax.make_array_from_callback"
        )
    raise TaskError(
        f"{path} is on {_named(found)}, but {like} is on {_named(placement)}: put all leaves on "
        "one mesh with jax.device_put, and what is not to be cut on each of its devices"
    )


def check_kind(path: str, leaf: Array, like: Leaf) -> None:
    if leaf.shape != like.shape or str(leaf.dtype) != like.dtype:
        raise TaskError(
            f"{path} is {leaf.dtype}{list(leaf.shape)}, but {like.dtype}{list(like.shape)} in the "
            "layout of the run: hand in the leaf of that shape and type"
        )


def check_even(path: str, shape: tuple[int, ...], sharding: Sharding) -> None:
    if not isinstance(sharding, NamedSharding):
        return
    for length, names in zip(shape, cut_of(sharding, len(shape)), strict=True):
        parts = math.prod(sharding.mesh.shape[name] for name in names)
        if length % parts:
            raise TaskError(
                f"{path} has a dimension of {length}, which the {parts} parts of the mesh's "
                f"{' × '.join(names)} cannot share evenly: pad it, or cut another dimension"
            )


def _check_sharding(path: str, sharding: Sharding) -> None:
    if not isinstance(sharding, NamedSharding | SingleDeviceSharding):
        raise TaskError(
            f"{path} has a {type(sharding).__name__}, which does not tell how it is cut: put it on "
            "its mesh with a NamedSharding (jax.device_put)"
        )
    device: jax.Device = next(iter(sharding.addressable_devices))
    usual = device.default_memory().kind
    if sharding.memory_kind not in {None, usual}:
        raise TaskError(
            f"{path} is in memory of the kind {sharding.memory_kind!r}: move it to that of the "
            f"device, with jax.device_put and its sharding.with_memory_kind({usual!r})"
        )
    if isinstance(sharding, NamedSharding) and getattr(sharding.spec, "unreduced", None):
        raise TaskError(
            f"{path} is a sum whose parts are still on several devices ({sharding.spec}): reshard "
            "it first, so that they are added"
        )


def _named(placement: Placement) -> str:
    if placement.mesh is None:
        return f"the single device {placement.devices[0]}"
    axes = " × ".join(f"{name} {size}" for name, size in placement.mesh.shape.items())
    return f"the mesh {axes} of devices {[device.id for device in placement.devices]}"
