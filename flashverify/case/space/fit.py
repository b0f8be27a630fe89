"""A case of the fixed lists moved into a subject's declaration: the nearest case with the sizes, masks and storage that it has."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import PARTS
from flashverify.case.masks.packed import Packed
from flashverify.case.masks.part import Drawn
from flashverify.case.quantised.drawing import dealt
from flashverify.case.shared_kv import share
from flashverify.case.space.heads import head_choices
from flashverify.case.space.profiles import CPU
from flashverify.case.space.random_source import RandomSource
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask
    from flashverify.case.sizes import Lengths
    from flashverify.case.supports import Supports

    Sequences = list[tuple[int, int]]

__all__ = ["fitted"]

_SHORT = 33
"""A length below every declared one stands for the smallest of these up to here, then for the second and the third."""
_SMALL = 80**2
"""Rows times keys up to which a dense sequence becomes up to three packed ones."""


def fitted(supports: Supports, case: Case, number: int = 0) -> Case | None:
    """The case with the axes that the subject declares narrowly changed to declared values; None where there is none.

    Lengths, heads, sides and alignment of a window, missing parts of the mask, pages, the strides of dO and the
    precision of fp32 products are changed. A refusal for another reason stays one.

    Args:
        supports: what the subject declares.
        case: any.
        number: of the case in its list; the choices take turns by it.
    """
    if case.dtype == "fp32" and case.precision == "ieee" and "ieee" not in supports.precisions:
        case = replace(case, precision=supports.precisions[0])
    if supports.quantised:
        try:
            case = dealt(supports, case, number)
        except UsageError:
            return None
    if supports.refusal(case) is None:
        return case
    if not _is_narrow(supports):
        return None
    try:
        found = _changed(supports, case, number)
    except UsageError:
        return None
    return found if supports.refusal(found) is None else None


def _is_narrow(supports: Supports) -> bool:
    masks = supports.required_masks or set(supports.window_sides) != {"left", "right"}
    heads = supports.heads_q is not None or supports.group_sizes is not None
    heads = heads or supports.heads_kv is not None or supports.dim_pairs is not None
    storage = supports.contiguous or supports.always_paged or not supports.freed_pages or "separate" not in supports.kv
    aligned = "top-left" not in supports.window_alignments
    return bool(masks or heads or storage or aligned or supports.declares_lengths())


def _changed(supports: Supports, case: Case, number: int) -> Case:
    mask, sequences = case.mask, _sequences(supports, case, number)
    packed = case.mask.packed is not None or "packed" in supports.required_masks
    if supports.dim_pairs is not None and (case.dim_qk, case.dim_v) not in supports.dim_pairs:
        dim_qk, dim_v = supports.dim_pairs[number % len(supports.dim_pairs)]
        case = replace(case, dim_qk=dim_qk, dim_v=dim_v, values=replace(case.values, edits=()))
    if case.storage.kv not in supports.kv:
        case = share(case)
    changes: dict[str, Any] = _heads(supports, case, number)
    if packed:
        cu_q, cu_k = (tuple(accumulate((pair[axis] for pair in sequences), initial=0)) for axis in (0, 1))
        seq_q, seq_k = max(cu_q[-1], supports.seq_multiple), max(cu_k[-1], supports.seq_multiple)
        seq_q, seq_k = (max(seq_q, seq_k),) * 2 if supports.square else (seq_q, seq_k)
        changes |= {"batch": 1, "seq_q": seq_q, "seq_k": seq_k}
        value = Packed(cu_q, cu_k)
    else:
        seq_q, seq_k = sequences[0] if sequences else (case.seq_q, case.seq_k)
        changes |= {"seq_q": seq_q, "seq_k": seq_k}
        value = None
    mask = _masked(mask, value, sequences)
    mask = _windowed(supports, _completed(supports, mask, (len(sequences), seq_q, seq_k), number))
    if supports.always_paged and case.storage.page_size is None:
        size = supports.page_sizes[number % len(supports.page_sizes)]
        case = replace(case, storage=replace(case.storage, page_size=size))
    if case.storage.page_size is not None and not supports.freed_pages:
        case = replace(case, storage=replace(case.storage, kept_pages=True))
    if supports.contiguous:
        changes["storage"] = replace(case.storage, layout=supports.layouts[0])
        changes["grad"] = case.grad if case.grad.do == "zero" else replace(case.grad, do="dense")
    bare = replace(case, **changes, mask=mask, values=replace(case.values, edits=()))
    shapes = bare.editable
    edits = tuple(
        e
        for e in case.values.edits
        if e.tensor in shapes and all(i < n for i, n in zip(e.index, shapes[e.tensor], strict=True))
    )
    return replace(bare, values=replace(case.values, edits=edits))


def _heads(supports: Supports, case: Case, number: int) -> dict[str, int]:
    """Numbers of heads that the subject has: those of the case, or others in turn."""
    choices = list(dict.fromkeys(head_choices(supports, CPU)))
    if (case.heads_q, case.heads_kv) in {each[1:] for each in choices} or not choices:
        return {}
    _, heads_q, heads_kv = choices[number % len(choices)]
    return {"heads_q": heads_q, "heads_kv": heads_kv}


def _sequences(supports: Supports, case: Case, number: int) -> Sequences:
    """(rows, keys) of each sequence, of declared lengths; dense sequences that must be packed are as long as they declare.

    A single one that must be packed stands up to three times, by the number.
    """
    mask = case.mask
    if mask.packed is not None:
        given: Sequences = list(mask.packed.lengths())
    elif "packed" in supports.required_masks:
        rows = mask.query_lengths or (case.seq_q,) * case.batch
        keys = mask.key_lengths or (case.seq_k,) * case.batch
        given = list(zip(rows, keys, strict=True))
        if case.batch == 1 and case.seq_q * case.seq_k * supports.seq_multiple**2 <= _SMALL and mask.bitmap is None:
            given *= 1 + number % 3
    else:
        given = [(case.seq_q, case.seq_k)] * case.batch
    return [_declared(supports, pair, mask) for pair in given]


def _declared(supports: Supports, pair: tuple[int, int], mask: Mask) -> tuple[int, int]:
    rows, keys = supports.rows(), supports.keys()
    if supports.square or (mask.causal is not None and not supports.rectangular_causal):
        length = _length(max(pair), rows & keys)
        return length, length
    seq_q, seq_k = _length(pair[0], rows), _length(pair[1], keys)
    if mask.tree is not None and seq_k < seq_q:
        seq_k = keys.first(seq_q) or seq_k
    return seq_q, seq_k


def _length(length: int, lengths: Lengths) -> int:
    if length in lengths or length == 0:
        return length
    found = lengths.up_to(length, number=3)
    if found[0] <= length:
        return max(n for n in found if n <= length)
    return found[min((length - 1) // _SHORT, len(found) - 1)]


def _masked(mask: Mask, packed: Packed | None, sequences: Sequences) -> Mask:
    """The mask with what it says of each sequence cut or grown to its length; packed sequences lie where `packed` says."""
    changed: dict[str, Any] = {"packed": packed}
    if packed is not None:
        changed |= {"key_lengths": None, "query_lengths": None}
    for part, value in mask.given():
        if part.name in changed or part.name == "packed" or not sequences:
            continue
        pieces = part.per_sequence(value, mask)
        if pieces is None and part.name == "tree" and packed is not None:
            pieces = [value] * len(sequences)
        if pieces is not None:
            fitting = [_sized(part, pieces[n % len(pieces)], size) for n, size in enumerate(sequences)]
            changed[part.name] = part.join(fitting, packed=packed is not None)
        elif part.name == "tree":
            changed[part.name] = _sized(part, value, sequences[0])
    return replace(mask, **changed)


def _sized(part: Any, piece: Any, size: tuple[int, int]) -> Any:
    """An entry cut to the rows and keys of its sequence; a tree grown to its rows as well."""
    cut = part.cut(piece, *size)
    return part.grow(cut, size[0] - len(cut), 0) if part.name == "tree" else cut


def _completed(supports: Supports, mask: Mask, shape: tuple[int, int, int], number: int) -> Mask:
    """The mask with the parts that every case of the subject has; the values of the added ones are drawn by the number."""
    required = set(supports.required_masks)
    required |= {name for part in PARTS if part.name in required for name in part.needs}
    missing = required - mask.parts()
    values: dict[str, Any] = {part.name: value for part, value in mask.given()}
    source = RandomSource(Random(number))
    for part in PARTS:
        if part.name in missing:
            drawn = Drawn(
                supports=supports,
                parts=mask.parts() | missing,
                sequences=shape[0],
                seq_q=shape[1],
                seq_k=shape[2],
                block=(supports.block_multiple, supports.block_multiple),
                values=dict(values),
            )
            values[part.name] = part.draw(source, drawn)
    return replace(mask, **values) if missing else mask


def _windowed(supports: Supports, mask: Mask) -> Mask:
    """The mask with its window open on the sides that the subject has not, aligned as it has it."""
    if mask.window is None:
        return mask
    sides = zip(("left", "right"), mask.window, strict=True)
    left, right = (width if side in supports.window_sides else None for side, width in sides)
    alignment = mask.window_alignment
    if mask.causal is None and (alignment or "top-left") not in supports.window_alignments:
        alignment = None if "top-left" in supports.window_alignments else "bottom-right"
    return replace(mask, window=(left, right), window_alignment=alignment)
