"""Hypothesis strategies over the cases that a subject supports, small first.

Every list that is drawn from runs from plain to wild and every integer towards its lower end, so that shrinking ends at the
smallest shape, the plainest regime and no optional feature.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis import assume
from hypothesis import strategies as st

from flashverify.case.case import DTYPES, PRECISIONS, Case
from flashverify.case.modifiers.dropout import draw_threshold
from flashverify.case.quantised.drawing import draw_quantised
from flashverify.case.shared_kv import sharable, share
from flashverify.case.space.compile_keys import CompileKey, list_compile_keys, page_choices, usual_kinds
from flashverify.case.space.declared_lengths import draw_declared_lengths, draw_packed
from flashverify.case.space.dims import dim_choices
from flashverify.case.space.draws import Choices, draw_modifiers
from flashverify.case.space.edits import draw_edits
from flashverify.case.space.heads import all_head_choices
from flashverify.case.space.launches import draw_launch, lengths_at_tiles
from flashverify.case.space.lengths import draw_lengths, narrowed
from flashverify.case.space.long_lengths import draw_long_lengths, draw_long_packed
from flashverify.case.space.optional_parts import (
    alignments,
    block_sizes,
    combine,
    draw_extras,
    draw_parts,
)
from flashverify.case.space.profiles import CPU, GPU, Profile
from flashverify.case.space.sampling import one_in, sampled_from
from flashverify.case.space.seen_masks import draw_seen_mask
from flashverify.case.space.storage_draws import draw_grad, draw_storage, scale_choices
from flashverify.case.space.stretched import long_keys, many_blocks
from flashverify.case.space.tile_sizes import tile_of
from flashverify.case.space.traced import with_alignment, with_grad, with_storage
from flashverify.case.space.value_draws import draw_values
from flashverify.case.tensors import TENSORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["CPU", "GPU", "Profile", "all_kinds", "cases", "drawn_dtypes"]

_SEQUENCES = (1, 2, 2, 3, 2, 3, 4, 7, 2, 4, 3, 12, 24)
"""Packed sequences of a case."""
_EMPTY = 40
"""One case in so many has an empty batch or sequence."""
_MAX_TABLE = 2**22
"""Most pairs over all heads and sequences where a bias, a bitmap or what lists name has one element for each."""
_ALL_KINDS = 2048
"""Kinds that a long search may reach, of which equal ones are one."""


def cases(supports: Supports, *, profile: Profile = CPU, kinds: Sequence[CompileKey] = ()) -> SearchStrategy[Case]:
    """Cases that a subject supports, by construction; only `supports.also` may reject a draw.

    A dtype whose plainest case `supports.also` refuses is not drawn at all.

    Args:
        supports: what the subject declares.
        profile: how large the cases may be.
        kinds: those that are drawn, such as some of `all_kinds`; none are those of the profile.
    """
    if kinds:
        return _cases(supports, profile, st.sampled_from(kinds))
    dims, formats = dim_choices(supports, profile), _formats(supports, profile)
    if profile.kinds is not None and supports.compiles:
        count = usual_kinds(supports, profile.kinds)
        heads = all_head_choices(supports, profile)
        return _cases(supports, profile, sampled_from(list_compile_keys(supports, dims, formats, count, heads)))
    return _cases(supports, profile, _free_kinds(supports, dims, formats))


def all_kinds(supports: Supports, profile: Profile) -> tuple[CompileKey, ...]:
    """The kinds that a compiled subject may be drawn from, those of the profile first; each stretch of them is spread over all axes."""
    dims, heads = dim_choices(supports, profile), all_head_choices(supports, profile)
    return list_compile_keys(supports, dims, _formats(supports, profile), _ALL_KINDS, heads)


def _formats(supports: Supports, profile: Profile) -> list[tuple[str, str]]:
    """(dtype, precision) to choose from."""
    return [
        (dtype, precision)
        for dtype in drawn_dtypes(supports, profile)
        for precision in PRECISIONS
        if (precision in supports.precisions if dtype == "fp32" else precision == "ieee")
    ]


def drawn_dtypes(supports: Supports, profile: Profile) -> tuple[str, ...]:
    """The dtypes of the cases: those whose plainest case `supports.also` accepts, or all where it accepts none."""
    dtypes = [d for d in DTYPES if d in supports.dtypes]
    (dim_qk, dim_v), *_ = dim_choices(supports, profile)
    if supports.also is not None:
        plain = Case(dim_qk=dim_qk, dim_v=dim_v)
        dtypes = [d for d in dtypes if supports.refused_by_also(dataclasses.replace(plain, dtype=d)) is None] or dtypes
    return tuple(dtypes)


@st.composite
def _free_kinds(
    draw: Draw, supports: Supports, dims: list[tuple[int, int]], formats: list[tuple[str, str]]
) -> CompileKey:
    """Any combination."""
    dtypes = list(dict.fromkeys(dtype for dtype, _ in formats))
    dtype = draw(sampled_from(dtypes))
    pair = draw(sampled_from(dims))
    precision = draw(sampled_from([p for d, p in formats if d == dtype]))
    parts = draw_parts(draw, supports)
    aligned = not (supports.unaligned and draw(one_in(3)))
    launch = draw_launch(draw, supports)
    parts, features = combine(supports, parts, draw_extras(draw, supports))
    if ends := alignments(supports, parts):
        parts |= draw(sampled_from(ends)) if len(ends) > 1 else ends[0]
    block = draw(sampled_from(block_sizes(supports))) if "blocks" in parts else (16, 16)
    paged = supports.page_sizes and "packed" not in parts
    page = draw(sampled_from(page_choices(supports))) if paged else None
    return CompileKey(
        dims=pair,
        dtype=dtype,
        precision=precision,
        parts=parts,
        aligned=aligned,
        launch=launch,
        features=features,
        block=block,
        page_size=page,
    )


@st.composite
def _cases(draw: Draw, supports: Supports, profile: Profile, kinds: SearchStrategy[CompileKey]) -> Case:
    batch, heads_q, heads_kv = draw(sampled_from(all_head_choices(supports, profile)))
    empty = draw(sampled_from(("batch", "seq_q", "seq_k"))) if supports.empty and draw(one_in(_EMPTY)) else ""
    kind = draw(kinds)
    if kind.traced is not None:
        batch, heads_q, heads_kv = kind.traced.heads
    batch = 0 if empty == "batch" else batch
    (dim_qk, dim_v), parts = kind.dims, kind.parts
    sequences = batch
    if "packed" in parts:
        sequences, batch = (draw(sampled_from(_SEQUENCES)) if batch else 0), 1
    pairs = max(profile.max_work // max(batch * heads_q * (dim_qk + dim_v), 1), 4)
    if parts & {"bitmap", "selection"} or "bias" in kind.features:
        pairs = min(pairs, max(_MAX_TABLE // max(batch * heads_q, 1), 4))
    reach, packed = profile.reaching(kind.features), None
    if profile.log_uniform:
        longest = min(profile.max_seq, profile.max_elements // max(batch * heads_q * max(dim_qk, dim_v), 1))
        if profile.max_tiles is not None and supports.launches():
            longest = min(longest, profile.max_tiles * min(tile_of(kind.launch, *profile.tile)))
        room = {"pairs": min(pairs, profile.max_pairs), "longest": longest}
        if "packed" in parts:
            packed, *buffers = draw_long_packed(draw, supports, parts, **room, sequences=sequences)
            sequences, lengths = len(packed.cu_q) - 1, (buffers[0], buffers[1])
        else:
            lengths = draw_long_lengths(draw, supports, parts, kind.block, **room, empty=empty)
    elif not supports.declares_lengths(parts):
        lengths = draw_lengths(draw, supports, reach, parts, pairs, empty, tile_of(kind.launch, *profile.tile))
    elif "packed" in parts:
        packed, *buffers = draw_packed(draw, supports, reach, parts, pairs, sequences)
        lengths = (buffers[0], buffers[1])
    else:
        lengths = draw_declared_lengths(draw, supports, reach, parts, pairs, empty)
    if kind.launch and packed is None and not profile.log_uniform:
        lengths = lengths_at_tiles(draw, supports, kind.launch, parts, lengths, pairs, profile.max_seq)
    if packed is None and not profile.log_uniform:
        lengths = many_blocks(draw, supports, parts, lengths, kind.block[1], pairs)
    if packed is None:
        lengths = narrowed(draw, supports, parts, lengths)
    if packed is None and not profile.log_uniform and "bias" not in kind.features:
        lengths = long_keys(draw, supports, parts, lengths, batch * heads_kv * (dim_qk + dim_v), kind.page_size)
    seq_q, seq_k = lengths
    mask = draw_seen_mask(draw, supports, parts, kind, (batch, sequences, heads_q, *lengths), packed)
    logits, dropout = draw_modifiers(draw, supports, kind.features)
    storage = dataclasses.replace(
        draw_storage(draw, supports, kind.aligned),
        page_size=kind.page_size,
        kept_pages=kind.page_size is not None and not supports.freed_pages,
    )
    if kind.traced is not None:
        mask, storage = with_alignment(mask, kind.traced), with_storage(storage, kind.traced)
    case = Case(
        batch=batch,
        heads_q=heads_q,
        heads_kv=heads_kv,
        seq_q=seq_q,
        seq_k=seq_k,
        dim_qk=dim_qk,
        dim_v=dim_v,
        dtype=kind.dtype,
        precision=kind.precision,
        scale=draw(sampled_from(scale_choices(supports))),
        mask=mask,
        logits=logits,
        dropout=dropout,
        values=draw_values(draw, 1 if profile.log_uniform else batch * (1 if storage.expand else heads_kv)),
        storage=storage,
        grad=draw_grad(draw, supports),
        launch=kind.launch,
    )
    if case.dropout and draw(one_in(3)):
        case = dataclasses.replace(case, dropout=draw_threshold(Choices(draw), case))
    if supports.strided and kind.traced is None and _has_vectors(case) and draw(one_in(3)):
        case = dataclasses.replace(case, storage=dataclasses.replace(case.storage, strided=True))
    if supports.transposed and kind.traced is None and case.storage.page_size is None and draw(one_in(5)):
        case = dataclasses.replace(case, storage=dataclasses.replace(case.storage, transposed=True))
    if kind.traced is not None:
        case = with_grad(case, kind.traced)
    if sharable(supports, case) and ("separate" not in supports.kv or draw(one_in(3))):
        case = share(case)
    if supports.quantised:
        case = dataclasses.replace(case, quantised=draw_quantised(Choices(draw), supports, case))
    if draw(one_in(6)):
        case = dataclasses.replace(
            case, values=dataclasses.replace(case.values, edits=draw_edits(draw, supports, case))
        )
    if supports.also is not None:
        if case.launch and supports.refused_by_also(case) is not None:
            case = dataclasses.replace(case, launch=())
        assume(supports.refused_by_also(case) is None)
    reason = supports.refusal(case)
    assert reason is None, f"{case} was drawn although {reason}"
    return case


def _has_vectors(case: Case) -> bool:
    """Whether a tensor of the case may be every second element of its buffer."""
    return any(spec.dtype == "fp32" and spec.shape is not None and spec.shape(case) for spec in TENSORS.values())
