"""What the tables are drawn against, read off the text form of a case."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.case import DTYPES
from flashverify.case.heads import head_regimes, stored_heads
from flashverify.case.modifiers.logits import modifiers_of
from flashverify.case.text import parse_case
from flashverify.errors import UsageError
from flashverify.outputs import OUTPUTS
from flashverify.outputs import output as output_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

__all__ = [
    "BINS",
    "MIXED",
    "Axes",
    "axes_of",
    "bucket_of",
    "bucket_text",
    "dtype_of",
    "dtype_rank",
    "output_rank",
    "position",
]

MIXED = "mixed"
"""The regime of a case whose heads have regimes of their own, where one word stands for all of it."""

BINS = 16
"""Bins of the relative position along the rows or keys."""

_KEYED = frozenset(name for name in OUTPUTS if output_spec(name).along == "key")


@dataclass(frozen=True, slots=True)
class Axes:
    """Where a case lies.

    Args:
        dtype: with the precision of fp32 products where it is not ieee.
        bucket: of the longer of the two sequence lengths, see `bucket_of`.
        regime: of the values; `MIXED` where heads have regimes of their own.
        regimes: of each stored head of k in each batch entry, where the heads have regimes of their own.
        heads: (query heads, heads of k, stored heads of k).
        mask: the parts of the mask and what modifies the logits and weights, in words.
        seq_q, seq_k: the lengths.
        traits: pairs of an axis of `flashverify.report.tested` and a value on it.
    """

    dtype: str
    bucket: int
    regime: str
    mask: str
    seq_q: int
    seq_k: int
    traits: tuple[tuple[str, str], ...] = ()
    regimes: tuple[str, ...] = ()
    heads: tuple[int, int, int] = (1, 1, 1)

    def regime_of(self, output: str, index: tuple[int, ...]) -> str:
        """The regime of an element of an output; `MIXED` for one that sums over heads or batch entries of several, and for one unknown here or outside of the case."""
        if not self.regimes or output not in OUTPUTS:
            return self.regime
        spec, (heads_q, heads_kv, stored) = output_spec(output), self.heads
        of_kv = spec.axis("head_kv")
        batch, head = spec.axis("batch"), spec.axis("head_q") if of_kv is None else of_kv
        if len(index) != len(spec.axes):
            return self.regime
        if batch is None or head is None or spec.optional:
            return self.regime if len(set(self.regimes)) > 1 else self.regimes[0]
        heads = heads_q if of_kv is None else heads_kv
        if not (0 <= index[head] < heads and 0 <= index[batch] * stored < len(self.regimes)):
            return self.regime
        return self.regimes[index[batch] * stored + index[head] * stored // heads]


_UNREADABLE = Axes("unreadable case", -1, "unreadable case", "unreadable case", 0, 0)


@functools.lru_cache(maxsize=4096)
def axes_of(text: str) -> Axes:
    """The axes of a case; those of an unreadable one where `text` is no case."""
    try:
        case = parse_case(text)
    except UsageError:
        return _UNREADABLE
    return Axes(
        dtype=case.dtype if case.precision == "ieee" else f"{case.dtype} {case.precision}",
        bucket=bucket_of(max(case.seq_q, case.seq_k)),
        regime=MIXED if case.values.mixed else case.values.regime,
        mask=_mask_text(case),
        seq_q=case.seq_q,
        seq_k=case.seq_k,
        traits=tuple(_traits(case)),
        regimes=head_regimes(case),
        heads=(case.heads_q, case.heads_kv, stored_heads(case)),
    )


def dtype_of(text: str) -> str:
    """`Axes.dtype` of a case, told by the words that name it."""
    return axes_of(" ".join(word for word in text.split() if word.startswith(("fv", "dtype=", "precision=")))).dtype


def _traits(case: Case) -> Iterator[tuple[str, str]]:
    yield "dtype", case.dtype if case.precision == "ieee" else f"{case.dtype} {case.precision}"
    for part, _ in case.mask.given():
        yield "mask", f"causal {case.mask.causal}" if part.name == "causal" else part.name.replace("_", " ")
    for modifier in modifiers_of(case):
        yield "modifier", modifier.name.replace("_", " ")
    yield from (("regime", regime) for regime in sorted(set(head_regimes(case) or (case.values.regime,))))
    yield "head dim", str(case.dim_qk) if case.dim_qk == case.dim_v else f"{case.dim_qk} with {case.dim_v}"
    yield "group", str(case.heads_q // case.heads_kv)
    yield "layout", case.storage.layout
    if case.storage.page_size is not None:
        yield "layout", "paged"
    if case.quantised is not None:
        yield "codes", f"{case.quantised.codes}{', q too' * case.quantised.q}"
        yield "scales", f"{case.quantised.scales}{', zero points' * case.quantised.zeros}"
    for name, value in case.launch:
        yield "launch", f"{name}={value}"
    yield "gradients", "with" if case.grad.backward else "without"


def _mask_text(case: Case) -> str:
    mask = case.mask
    words = [f"causal {mask.causal}"] if mask.causal else []
    words += [name.replace("_", " ") for name in sorted(mask.parts() - {"causal"})]
    words += [modifier.name for modifier in modifiers_of(case)]
    words += ["paged"] * (case.storage.page_size is not None)
    return " + ".join(words) or "none"


def bucket_of(length: int) -> int:
    """The power of two that `length` reaches: 1 -> 0, 2 -> 1, 3..4 -> 2, 5..8 -> 3; -1 for the empty sequence."""
    return (length - 1).bit_length() if length else -1


def bucket_text(bucket: int) -> str:
    """The lengths of a bucket."""
    if bucket <= 1:
        return str(max(0, bucket + 1))
    return f"{2 ** (bucket - 1) + 1}–{2**bucket}"


def position(output: str, index: tuple[int, ...], axes: Axes) -> int | None:
    """The bin of an element along its rows (keys for dK and dV); None where the index is not inside."""
    length = axes.seq_k if output in _KEYED else axes.seq_q
    if len(index) < 3 or not 0 <= index[2] < length:
        return None
    return BINS * index[2] // length


def output_rank(output: str) -> tuple[int, str]:
    """Sort key of outputs."""
    return (OUTPUTS.index(output) if output in OUTPUTS else len(OUTPUTS), output)


def dtype_rank(dtype: str) -> tuple[int, str]:
    """Sort key of dtypes, as `Axes` words them."""
    name = dtype.partition(" ")[0]
    return (DTYPES.index(name) if name in DTYPES else len(DTYPES), dtype)
