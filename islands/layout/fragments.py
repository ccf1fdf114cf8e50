"""Plan which trainable tensors form which fragment (protocol §4); `leaves.py` defines the terms.

How many fragments: `P_eff = min(P, pieces of at least 64 KiB)`, at least 1, where a leaf above
the fair share (total / P) has been cut by rows, never below 64 KiB. The fair share depends on
P_eff in turn, so planning repeats with the smaller number until it stays; it only falls.

Patterns: `balanced` puts pieces in descending size, ties by name, each into the lightest
fragment. `layers` gives each fragment consecutive layers, `strided` every P-th layer (Streaming
DiLoCo); leaves that belong to no layer then go to the lightest fragment.

Leaves that lie beside another (an optimizer's moments beside their parameter) are cut where it is
cut and share its fragments, so that they are merged at the same moments; they count towards
neither the fair share nor the number of fragments.

The syncer plans without JAX, so this file imports NumPy and nothing heavier.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from islands.layout.leaves import Fragment, Layout, Leaf, Piece, layout_of
from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.settings.choices import Pattern

MIN_PIECE_BYTES = 64 * 1024
_Indexed = tuple[int, Leaf]  # its index among all leaves
_BYTES_PER_ELEMENT = 4  # published values are float32, whatever the leaf's own dtype


def plan(
    leaves: Sequence[Leaf],
    *,
    count: int,
    pattern: Pattern = Pattern.BALANCED,
    min_piece_bytes: int = MIN_PIECE_BYTES,
    labels: Mapping[str, str] | None = None,
    beside: Mapping[str, str] | None = None,
) -> Layout:
    """Spread the trainable leaves over at most `count` fragments (P), as on every machine.

    Args:
        leaves: The trainable leaves, in the order of the model's tree.
        count: A small model gets fewer fragments.
        min_piece_bytes: A fragment needs one piece of at least this size, in float32.
        labels: Further facts that enter the fingerprint.
        beside: The path of each leaf that lies beside another, and that other's path; both have
            one shape and one stack.
    """
    _check(leaves, count, pattern)
    least = max(1, -(-min_piece_bytes // _BYTES_PER_ELEMENT))
    spread = _balanced if pattern == Pattern.BALANCED else _layered
    leading: list[_Indexed] = []
    followers: dict[str, list[_Indexed]] = {}
    for index, leaf in enumerate(leaves):
        leader = (beside or {}).get(leaf.path)
        group = leading if leader is None else followers.setdefault(leader, [])
        group.append((index, leaf))
    bins = [
        [*pieces, *_besides(pieces, followers)] for pieces in spread(leading, count, least, pattern)
    ]
    fragments = [_fragment(index, pieces) for index, pieces in enumerate(bins)]
    return layout_of(leaves, fragments, pattern, labels or {})


def _check(leaves: Sequence[Leaf], count: int, pattern: str) -> None:
    if count < 1:
        raise SettingsError(f"{count} fragments asked for; at least 1 is needed")
    if pattern not in tuple(Pattern):
        known = ", ".join(Pattern)
        raise SettingsError(f"fragment pattern '{pattern}' is unknown; use one of {known}")
    seen: set[str] = set()
    for leaf in leaves:
        if not re.match(r"b?float\d", leaf.dtype):
            raise TaskError(
                f"{leaf.path} is {leaf.dtype}: only floating leaves train; freeze it instead"
            )
        if leaf.path in seen:
            raise TaskError(f"the path {leaf.path} occurs twice among the trainable leaves")
        seen.add(leaf.path)
    if not any(leaf.size for leaf in leaves):
        raise TaskError(
            "the model has no trainable elements; the trainable filter lets nothing through"
        )


def _besides(
    pieces: Sequence[Piece], followers: Mapping[str, Sequence[_Indexed]]
) -> Iterator[Piece]:
    """Yield, for each piece, the same rows of the leaves that lie beside its leaf."""
    for piece in pieces:
        for index, leaf in followers.get(piece.path, ()):
            yield _piece(leaf, index, piece.row_start, piece.row_stop)


def _balanced(
    leaves: Sequence[_Indexed], count: int, least: int, _pattern: Pattern
) -> list[list[Piece]]:
    """Put pieces in descending size, each into the lightest of P_eff bins."""
    pieces, count = _cut_all(leaves, count, least)
    bins: list[list[Piece]] = [[] for _ in range(count)]
    _fill_lightest(bins, pieces)
    return bins


def _layered(
    leaves: Sequence[_Indexed], count: int, least: int, pattern: Pattern
) -> list[list[Piece]]:
    """Put whole layers into bins, consecutive or strided; other leaves go to the lightest bin."""
    layers: dict[int, list[Piece]] = {}
    others: list[_Indexed] = []
    for index, leaf in leaves:
        number = re.search(r"(?:^|/)(\d+)(?:/|$)", leaf.path)
        if leaf.size and leaf.stack > 1:
            rows = leaf.rows // leaf.stack
            for entry in range(leaf.stack):
                layers.setdefault(entry, []).append(
                    _piece(leaf, index, entry * rows, (entry + 1) * rows)
                )
        elif leaf.size and number:
            layers.setdefault(int(number[1]), []).append(_piece(leaf, index, 0, leaf.rows))
        else:
            others.append((index, leaf))
    if not layers:
        raise SettingsError(
            f"pattern is {pattern}; it needs numbered or stacked layers, and no path of this model "
            "has a number: use balanced, or let the task's stack(path) tell what is stacked"
        )
    enough = sum(p.size >= least for layer in layers.values() for p in layer)
    count = max(1, min(count, len(layers), enough))
    bins: list[list[Piece]] = [[] for _ in range(count)]
    for index, layer in enumerate(sorted(layers)):
        target = index % count if pattern == Pattern.STRIDED else index * count // len(layers)
        bins[target].extend(layers[layer])
    fair = sum(leaf.size for _, leaf in leaves) / count
    _fill_lightest(bins, [p for i, leaf in others for p in _cut(leaf, i, fair, least)])
    return bins


def _fill_lightest(bins: list[list[Piece]], pieces: Sequence[Piece]) -> None:
    """Put pieces, in descending size with ties by name, each into the lightest bin."""
    loads = [sum(piece.size for piece in chosen) for chosen in bins]
    for piece in sorted(pieces, key=lambda p: (-p.size, p.path, p.row_start)):
        lightest = min(range(len(bins)), key=loads.__getitem__)
        bins[lightest].append(piece)
        loads[lightest] += piece.size


def _cut_all(leaves: Sequence[_Indexed], count: int, least: int) -> tuple[list[Piece], int]:
    """Cut leaves above the fair share and determine P_eff; `count` falls until it stays."""
    total = sum(leaf.size for _, leaf in leaves)
    while True:
        fair = total / count
        pieces = [p for i, leaf in leaves for p in _cut(leaf, i, fair, least)]
        enough = max(1, min(count, sum(piece.size >= least for piece in pieces)))
        if enough == count:
            return pieces, count
        count = enough


def _cut(leaf: Leaf, index: int, fair: float, least: int) -> Iterator[Piece]:
    """Yield the pieces of one leaf: the whole leaf, or even ranges of rows if it is too large."""
    if not leaf.size:
        return
    entry_rows = leaf.rows // leaf.stack
    row_size = leaf.size // leaf.rows
    if leaf.size <= fair:
        cuts = [0, leaf.rows]
    elif leaf.stack > 1 and entry_rows * row_size <= fair:
        entry_cuts = _even_cuts(leaf.stack, entry_rows * row_size, fair, least)
        cuts = [cut * entry_rows for cut in entry_cuts]
    else:
        inner = _even_cuts(entry_rows, row_size, fair, least)
        starts = range(0, leaf.rows, entry_rows)
        cuts = [start + cut for start in starts for cut in inner[:-1]] + [leaf.rows]
    for start, stop in pairwise(cuts):
        yield _piece(leaf, index, start, stop)


def _even_cuts(number: int, each: int, fair: float, least: int) -> list[int]:
    """Cut `number` items of `each` elements into even ranges of about `fair` elements."""
    wanted = math.ceil(number * each / fair)
    allowed = number // math.ceil(least / each)
    parts = max(1, min(wanted, allowed))
    return [part * number // parts for part in range(parts + 1)]


def _piece(leaf: Leaf, index: int, start: int, stop: int) -> Piece:
    whole = (start, stop) == (0, leaf.rows)
    shape = leaf.shape if whole else (stop - start, *leaf.row_shape)
    return Piece(
        path=leaf.path,
        leaf=index,
        row_start=start,
        row_stop=stop,
        shape=shape,
        size=math.prod(shape),
        role=leaf.role,
        entry_rows=leaf.rows // leaf.stack,
    )


def _fragment(index: int, pieces: Sequence[Piece]) -> Fragment:
    """Lay out pieces one after another, in the order of the model's tree."""
    located: list[Piece] = []
    offset = 0
    for piece in sorted(pieces, key=lambda p: (p.leaf, p.row_start)):
        located.append(replace(piece, offset=offset))
        offset += piece.size
    return Fragment(index, tuple(located), offset)
