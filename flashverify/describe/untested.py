"""What a declaration leaves untested, in words, topic by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.masks.mask import PARTS
from flashverify.case.modifiers.logits import LOGIT_MODIFIERS
from flashverify.case.sections import LAYOUTS, PRECISIONS
from flashverify.case.sizes import sizes_text
from flashverify.case.space.optional_parts import reachable
from flashverify.describe.record import Untested
from flashverify.formats import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.case.supports import Supports
    from flashverify.subjects.interface import Contract

__all__ = ["untested"]

_PADDED = ("key_lengths", "query_lengths", "packed")
_MODIFIED = {"dbias": "bias", "dsink": "sink", "drelative_bias": "relative_bias"}


def untested(supports: Supports, contract: Contract) -> tuple[Untested, ...]:
    """What no case of such a subject has, or what is not judged in any of them.

    Args:
        supports: what the subject declares.
        contract: its promises.
    """
    topics = (
        ("dtypes", _dtypes(supports)),
        ("masks", _masks(supports)),
        ("modifiers", _modifiers(supports)),
        ("lengths", _lengths(supports)),
        ("heads", _heads(supports)),
        ("head dims", _dims(supports)),
        ("scales", _scales(supports)),
        ("layouts", _layouts(supports)),
        ("paddings", _paddings(supports, contract)),
        ("values", () if supports.non_finite else ("NaN and infinity in q, k, v and dO",)),
        ("gradients", _gradients(supports, contract)),
        ("launches", _launches(supports)),
        ("promises", _promises(contract)),
    )
    return tuple(Untested(topic, what) for topic, found in topics for what in found)


def _without(every: Iterable[str], declared: Iterable[str]) -> str:
    had = set(declared)
    return ", ".join(name for name in every if name not in had)


def _dtypes(supports: Supports) -> Iterator[str]:
    if missing := _without(DTYPES, supports.dtypes):
        yield missing
    if "fp32" in supports.dtypes and (missing := _without(PRECISIONS, supports.precisions)):
        yield f"fp32 products in {missing}"


def _masks(supports: Supports) -> Iterator[str]:
    parts = [part.name for part in PARTS if part.role != "alignment"]
    if missing := _without(parts, supports.masks):
        yield missing
    if apart := _without(supports.masks, reachable(supports)):
        yield f"{apart}: declared, but they cannot stand with the required {', '.join(supports.required_masks)}"
    if supports.required_masks:
        yield f"cases without {' and '.join(supports.required_masks)}"
    if len(supports.masks) > 1 and not supports.combine_masks:
        yield "parts combined"
    if "causal" in supports.masks:
        if missing := _without(("top-left", "bottom-right"), supports.causal):
            yield f"causal {missing}"
        if not supports.rectangular_causal:
            yield "causal with other rows than keys"
    if "window" in supports.masks:
        if missing := _without(("left", "right"), supports.window_sides):
            yield f"windows bounded on the {missing}"
        if missing := _without(("top-left", "bottom-right"), supports.window_alignments):
            yield f"windows without causal, aligned {missing}"
    if "tree" in supports.masks and {"causal", "window"} & set(supports.masks) and not supports.banded_trees:
        yield "a tree with causal or a window"
    if "tree" in supports.masks and not supports.entry_trees:
        yield "a tree for each entry of a batch"


def _modifiers(supports: Supports) -> Iterator[str]:
    if missing := _without((modifier.name for modifier in LOGIT_MODIFIERS), supports.logits):
        yield missing
    if "alibi" in supports.logits and not supports.wild_slopes:
        yield "ALiBi with negative and large slopes"
    if {"alibi", "bias", "sink"} & set(supports.logits) and not supports.huge_modifiers:
        yield "slopes, sinks and biases of 2^95 and more"
    if not supports.dropout:
        yield "dropout"


def _lengths(supports: Supports) -> Iterator[str]:
    if not supports.empty:
        yield "empty batches and sequences"
    if supports.square:
        yield "other rows than keys"
    if supports.seq_multiple > 1:
        yield f"rows and keys that are no multiple of {supports.seq_multiple}: tails of tiles"
    if supports.seq_q is not None:
        yield f"query rows other than {sizes_text(supports.seq_q)}"
    if supports.max_seq_q is not None:
        yield f"more than {supports.max_seq_q} query rows"
    if supports.seq_k is not None:
        yield f"keys other than {sizes_text(supports.seq_k)}"


def _heads(supports: Supports) -> Iterator[str]:
    if supports.heads_q is not None:
        yield f"query heads other than {sizes_text(supports.heads_q)}"
    if supports.group_sizes is not None:
        yield f"groups other than of {sizes_text(supports.group_sizes)} query heads"
    if not supports.gqa:
        yield "several query heads per kv head"


def _dims(supports: Supports) -> Iterator[str]:
    if supports.dim_multiple > 1:
        yield f"other than multiples of {supports.dim_multiple}"
    yield f"above {supports.dim_max}"
    if supports.equal_dims:
        yield "dim_v other than dim_qk"


def _scales(supports: Supports) -> Iterator[str]:
    signs = ("positive", "zero", "negative")
    if not set(signs) & set(supports.scales):
        yield f"other than {', '.join(map(str, supports.scales))}"
    elif missing := _without(signs, (str(scale) for scale in supports.scales)):
        yield missing


def _layouts(supports: Supports) -> Iterator[str]:
    if missing := _without(LAYOUTS, supports.layouts):
        yield missing
    if not supports.page_sizes:
        yield "paged keys"
    elif supports.always_paged:
        yield "keys that are not paged"
    if supports.page_sizes and "window" in supports.masks and not supports.freed_pages:
        yield "pages before a window that were freed, with garbage in their entries"
    facts = (
        (supports.gaps, "gaps between rows"),
        (supports.unaligned, "pointers and strides that are no multiple of 16 bytes"),
        (supports.expand, "k and v with stride 0"),
        (supports.transposed, "q, k and v whose last axis is not contiguous"),
        (supports.far_strides, "tensors that span 2^31 elements"),
        (not supports.contiguous, "dO expanded or transposed"),
    )
    yield from (what for drawn, what in facts if not drawn and (supports.backward or "dO" not in what))


def _paddings(supports: Supports, contract: Contract) -> Iterator[str]:
    if not set(_PADDED) & reachable(supports):
        yield f"anything behind a declared length: none of {', '.join(_PADDED)}"
    elif contract.padding == "undefined":
        yield "what is written outside the declared lengths: undefined by contract"


def _gradients(supports: Supports, contract: Contract) -> Iterator[str]:
    if not supports.backward:
        yield "all of them: forward only"
        return
    if missing := _without(("dq", "dk", "dv"), contract.gradients):
        yield missing
    given = (name for name, modifier in _MODIFIED.items() if modifier in supports.logits)
    if missing := _without(given, contract.gradients):
        yield missing
    if not supports.dlse:
        yield "a gradient that arrives through LSE"


def _launches(supports: Supports) -> Iterator[str]:
    if not supports.launches():
        yield "other launch configurations than the default one"


def _promises(contract: Contract) -> Iterator[str]:
    if contract.lse_base is None:
        yield "LSE: none is returned"
    undefined = [
        name for name, value in (("O", contract.empty_row_o), ("LSE", contract.empty_row_lse)) if value is None
    ]
    if undefined:
        yield f"{' and '.join(undefined)} of rows that see no key, and their delta and dQ: undefined by contract"
    if contract.deterministic is None:
        yield "the same bits over repeats: measured, never a failure"
    if contract.batch_invariant is None:
        yield "the same bits alone and in a batch: measured, never a failure"
    if contract.masked_loads == "zero":
        yield "masked lanes of loads without other=: zero by contract"
    if contract.graphs is None:
        yield "capture in a CUDA graph: tried, never a failure where it is refused"
