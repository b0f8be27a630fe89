"""A case with more rows and keys, and all that hangs on their numbers with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import Packed, drawn_anew
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask

__all__ = ["grown"]


def grown(case: Case, rows: int, keys: int, *, regime: str, seed: int, dim: int = 0, **axes: Any) -> Case | None:
    """`case` with more rows and keys in every sequence, other values, and some axes replaced; None where there is no such case.

    Of packed sequences there are as many as `batch` says, at least.
    """
    batch = axes.get("batch", case.batch)
    mask = case.mask
    try:
        if mask.packed is not None:
            axes["batch"] = 1
            mask, seq_q, seq_k = _packed(case, mask.packed, rows, keys, batch)
        else:
            seq_q, seq_k = case.seq_q + rows, case.seq_k + keys
            if mask.tree is not None:
                seq_k = max(seq_k, case.seq_k + rows)
            mask = _grown(mask, (rows, keys), [(rows, keys)] * batch)
        if rows or keys:
            mask = _patterns(mask, seed)
        if dim:
            axes |= {"dim_qk": dim, "dim_v": dim}
        if rows or keys:
            axes["grad"] = replace(case.grad, do="dense")
        values = replace(case.values, regime=regime, seed=seed, edits=())
        return replace(case, **{"seq_q": seq_q, "seq_k": seq_k, "mask": mask, "values": values, **axes})
    except UsageError:
        return None


def _grown(mask: Mask, shared: tuple[int, int], more: list[tuple[int, int]], packed: Packed | None = None) -> Mask:
    """What the mask says of each sequence, grown by as many rows and keys; new sequences are like the first one.

    Args:
        mask: with sequences to grow.
        shared: rows and keys that what all sequences share grows by.
        more: rows and keys, a pair per sequence that there is to be.
        packed: where the grown sequences lie, None where they are not packed.
    """
    changed: dict[str, Any] = {}
    for part, value in mask.given():
        pieces = part.per_sequence(value, mask)
        if pieces is None:
            changed[part.name] = part.grow(value, *shared)
        elif pieces:
            grown = [part.grow(piece, *by) for piece, by in zip(pieces, more, strict=False)]
            grown += [part.another(grown[0], n) for n in range(1, len(more) - len(grown) + 1)]
            changed[part.name] = part.join(grown, packed=packed is not None)
    return replace(mask, **(changed | {"packed": packed}))


def _patterns(mask: Mask, seed: int) -> Mask:
    """Patterns drawn anew, sometimes with blocks of several tiles."""
    mask = drawn_anew(mask, seed)
    if mask.blocks is not None and seed % 2:
        mask = replace(mask, blocks=replace(mask.blocks, rows=2 * mask.blocks.rows, keys=2 * mask.blocks.keys))
    return mask


def _packed(case: Case, packed: Packed, rows: int, keys: int, least: int) -> tuple[Mask, int, int]:
    given = packed.lengths()
    given = (*given, *given[:1] * (least - len(given)))
    more = [(rows * (n % 2 == 0 or n >= len(packed.lengths())), keys) for n in range(len(given))]
    lengths = [(q + r, k + c) for (q, k), (r, c) in zip(given, more, strict=True)]
    if case.mask.tree is not None:
        lengths = [(q, max(k, q)) for q, k in lengths]
    cu_q, cu_k = [0], [0]
    for q, k in lengths:
        cu_q.append(cu_q[-1] + q)
        cu_k.append(cu_k[-1] + k)
    seq_q = case.seq_q - packed.cu_q[-1] + cu_q[-1]
    seq_k = case.seq_k - packed.cu_k[-1] + cu_k[-1]
    return _grown(case.mask, (rows, keys), more, Packed(tuple(cu_q), tuple(cu_k))), seq_q, seq_k
