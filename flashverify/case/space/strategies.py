"""Hypothesis strategies over the cases that a subject supports, small first.

Every list that is drawn from runs from plain to wild and every integer towards its lower end, so that shrinking ends at the
smallest shape, the plainest regime and no optional feature.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis import assume
from hypothesis import strategies as st

from flashverify.case.case import (
    DTYPES,
    POISONS,
    PRECISIONS,
    REGIMES,
    Case,
    Grad,
    Storage,
    Values,
)
from flashverify.case.modifiers.dropout import draw_threshold
from flashverify.case.space.compile_keys import CompileKey, list_compile_keys, page_choices
from flashverify.case.space.declared_lengths import draw_declared_lengths, draw_packed
from flashverify.case.space.draws import Choices, draw_lengths, draw_mask, draw_modifiers
from flashverify.case.space.edits import draw_edits
from flashverify.case.space.heads import head_choices
from flashverify.case.space.launches import draw_launch, lengths_at_tiles
from flashverify.case.space.optional_parts import (
    alignments,
    block_sizes,
    combine,
    draw_extras,
    draw_parts,
    extra_masks,
)
from flashverify.case.space.profiles import CPU, GPU, Profile
from flashverify.case.space.sampling import one_in, sampled_from
from flashverify.case.tensors import TENSORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["CPU", "GPU", "Profile", "cases", "drawn_dtypes"]

_REGIMES = (*REGIMES, "normal", "normal", "v-positive")
"""Those that every defect of the arithmetic shows with are likelier than those built against one."""
_MAX_TABLE = 2**22
"""Most pairs over all heads and sequences where a bias or a bitmap has one element for each."""


def cases(supports: Supports, *, profile: Profile = CPU) -> SearchStrategy[Case]:
    """Cases that a subject supports, by construction; only `supports.also` may reject a draw.

    A dtype whose plainest case `supports.also` refuses is not drawn at all.

    Args:
        supports: what the subject declares.
        profile: how large the cases may be.
    """
    dims = _dims(supports, profile)
    formats = [
        (dtype, precision)
        for dtype in drawn_dtypes(supports, profile)
        for precision in PRECISIONS
        if (precision in supports.precisions if dtype == "fp32" else precision == "ieee")
    ]
    if profile.kinds is not None and supports.compiles:
        return _cases(
            supports,
            profile,
            sampled_from(list_compile_keys(supports, dims, formats, _count(supports, profile.kinds))),
        )
    return _cases(supports, profile, _free_kinds(supports, dims, formats))


def _dims(supports: Supports, profile: Profile) -> list[tuple[int, int]]:
    """(dim_qk, dim_v) of the profile that the subject has."""
    dims = [p for p in profile.dims if all(d % supports.dim_multiple == 0 and d <= supports.dim_max for d in p)]
    return [(d, dv) for d, dv in dims if d == dv or not supports.equal_dims] or [(supports.dim_multiple,) * 2]


def drawn_dtypes(supports: Supports, profile: Profile) -> tuple[str, ...]:
    """The dtypes of the cases: those whose plainest case `supports.also` accepts, or all where it accepts none."""
    dtypes = [d for d in DTYPES if d in supports.dtypes]
    (dim_qk, dim_v), *_ = _dims(supports, profile)
    if supports.also is not None:
        plain = Case(dim_qk=dim_qk, dim_v=dim_v)
        dtypes = [d for d in dtypes if supports.also(dataclasses.replace(plain, dtype=d)) is None] or dtypes
    return tuple(dtypes)


def _count(supports: Supports, kinds: int) -> int:
    """A third more for a subject with every extra."""
    extras = len(supports.logits) + supports.dropout + len(extra_masks(supports))
    return kinds + kinds * extras // 24


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
    batch, heads_q, heads_kv = draw(sampled_from(head_choices(supports, profile)))
    empty = draw(sampled_from(("batch", "seq_q", "seq_k"))) if supports.empty and draw(one_in(12)) else ""
    batch = 0 if empty == "batch" else batch
    kind = draw(kinds)
    (dim_qk, dim_v), parts = kind.dims, kind.parts
    sequences = batch
    if "packed" in parts:
        sequences, batch = (draw(sampled_from((1, 2, 2, 3, 4, 7))) if batch else 0), 1
    pairs = max(profile.max_work // max(batch * heads_q * (dim_qk + dim_v), 1), 4)
    if "bitmap" in parts or "bias" in kind.features:
        pairs = min(pairs, max(_MAX_TABLE // max(batch * heads_q, 1), 4))
    reach, packed = profile.reaching(kind.features), None
    if not supports.declares_lengths(parts):
        lengths = draw_lengths(draw, supports, reach, parts, pairs, empty)
    elif "packed" in parts:
        packed, *buffers = draw_packed(draw, supports, reach, parts, pairs, sequences)
        lengths = (buffers[0], buffers[1])
    else:
        lengths = draw_declared_lengths(draw, supports, reach, parts, pairs, empty)
    if kind.launch and packed is None:
        lengths = lengths_at_tiles(draw, supports, kind.launch, parts, lengths, pairs, profile.max_seq)
    seq_q, seq_k = lengths
    mask = draw_mask(draw, supports, parts, (sequences, seq_q, seq_k), kind.block, packed)
    logits, dropout = draw_modifiers(draw, supports, kind.features)
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
        scale=draw(sampled_from(_scales(supports))),
        mask=mask,
        logits=logits,
        dropout=dropout,
        values=Values(regime=draw(sampled_from(_REGIMES)), seed=draw(st.integers(0, 255))),
        storage=dataclasses.replace(
            _storage(draw, supports, kind.aligned),
            page_size=kind.page_size,
            kept_pages=kind.page_size is not None and not supports.freed_pages,
        ),
        grad=_grad(draw, supports),
        launch=kind.launch,
    )
    if case.dropout and draw(one_in(3)):
        case = dataclasses.replace(case, dropout=draw_threshold(Choices(draw), case))
    if supports.strided and _has_vectors(case) and draw(one_in(3)):
        case = dataclasses.replace(case, storage=dataclasses.replace(case.storage, strided=True))
    if draw(one_in(6)):
        case = dataclasses.replace(
            case, values=dataclasses.replace(case.values, edits=draw_edits(draw, supports, case))
        )
    if supports.also is not None:
        if case.launch and supports.also(case) is not None:
            case = dataclasses.replace(case, launch=())
        assume(supports.also(case) is None)
    reason = supports.refusal(case)
    assert reason is None, f"{case} was drawn although {reason}"
    return case


def _has_vectors(case: Case) -> bool:
    """Whether a tensor of the case may be every second element of its buffer."""
    return any(spec.dtype == "fp32" and spec.shape is not None and spec.shape(case) for spec in TENSORS.values())


def _scales(supports: Supports) -> list[float | None]:
    """Scales of the signs that the subject has; the default, first, most often."""
    scales: list[float | None] = [None] * (3 * ("default" in supports.scales))
    scales += [float(scale) for scale in supports.scales if not isinstance(scale, str)]
    if "positive" in supports.scales:
        scales += [None] * 7 + [1.0, 0.125, 1e4, 1e-30, 2.0**-140]
    if "zero" in supports.scales:
        scales += [0.0]
    if "negative" in supports.scales:
        scales += [-0.125, -1.0]
    return scales


def _storage(draw: Draw, supports: Supports, aligned: bool) -> Storage:
    gaps = ((0, 0, 8) if aligned else (0, 1, 3)) if supports.gaps else (0,)
    offsets = (0, 0, 8) if aligned else (1, 4)
    return Storage(
        layout=draw(sampled_from([layout for layout in ("bhsd", "bshd") if layout in supports.layouts])),
        gap=draw(sampled_from(gaps)),
        offset=draw(sampled_from(offsets)),
        expand=supports.expand and draw(one_in(6)),
        padding=draw(sampled_from(POISONS)),
    )


def _grad(draw: Draw, supports: Supports) -> Grad:
    strided = () if supports.contiguous else ("expanded", "transposed")
    do = draw(sampled_from(("dense", "dense", "dense", *strided, "zero")))
    dlse = supports.dlse and draw(st.booleans())
    forward_only = draw(one_in(10))
    return Grad(do=do, dlse=dlse) if supports.backward and not forward_only else Grad(backward=False)
