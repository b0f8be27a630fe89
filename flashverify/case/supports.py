"""What a subject accepts: the part of the case space that is drawn for it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from flashverify.case.selections import Selections
from flashverify.case.sizes import Lengths
from flashverify.errors import UsageError
from flashverify.formats import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flashverify.case.case import Case

    Launch = tuple[tuple[str, int], ...]

__all__ = ["Supports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Supports:
    """The cases that a subject accepts. Strategies draw inside it; what lies outside is reported as unsupported, never judged.

    A list of sizes may be a tuple, a list or a `range`. Of packed sequences each has a length of its own, to which the conditions on
    rows and keys apply.

    Args:
        dtypes: of q, k, v.
        precisions: of fp32 products. A Triton kernel whose products are left to `tl.dot` has `("tf32",)`; 16-bit types have one alone.
        masks: parts of the mask that the subject has, by the names of the fields of `Mask`.
        required_masks: parts that every case has, such as `("packed",)` of a kernel that takes packed sequences alone.
        combine_masks: whether several parts may be present at once.
        causal: alignments of the causal part.
        rectangular_causal: whether causal may come with seq_q != seq_k, of packed sequences with their own lengths.
        window_sides: sides of a window that may be bounded: a subset of ("left", "right").
        window_alignments: alignments of a window without causal; with causal it has that of causal.
        logits: modifications of the logits, names of the fields of `Logits`.
        wild_slopes: whether the slopes of ALiBi may be negative and large.
        huge_modifiers: whether finite sinks, slopes and positive biases may be of any size. Slopes then act as 2^96 in base 2 from there on.
        dropout: whether weights may be dropped.
        banded_trees: whether a tree may stand with causal or a window, which count rows and keys.
        entry_trees: whether each entry of a dense batch may have a tree of its own, not only one that all share.
        block_multiple: rows and keys of a block of a block-sparse pattern are multiples of it.
        selections: of the mask part `selection`: the sizes of blocks, and what the lists may hold.
        page_sizes: keys per page that a paged k and v may have; empty where they must be contiguous.
        always_paged: whether k and v come in pages in every case.
        freed_pages: whether pages before the window of every row may be freed, as in a cache that rolls: their entries in the table are
            garbage. False for a kernel that walks over all entries: they name pages that hold their keys.
        quantised: formats of codes in which k and v come in every case, out of `e4m3`, `e5m2`, `int8` and `int4`; empty where they come
            as values.
        quantised_scales: what may share a scale, out of `tensor`, `head`, `token` and `block`.
        quantised_blocks: numbers of keys that a block with one scale may have; empty is any.
        quantised_q: what q may be in such cases: `values` in the dtype of the case, `codes` of the same format, or both.
        zero_points: whether scales of integers may have zero points.
        seq_q: numbers of query rows; None is any.
        seq_k: numbers of keys; None is any.
        max_seq_q: most query rows of a sequence, as of a decode kernel.
        seq_multiple: rows and keys are multiples of it, those of packed buffers too. Declared lengths inside them may be any.
        square: whether there must be as many rows as keys, in packed buffers too.
        heads_q: numbers of query heads; None is any.
        group_sizes: numbers of query heads per kv head; None is any.
        gqa: whether heads_q may be a multiple of heads_kv; False is a group size of 1.
        heads_kv: numbers of kv heads, as 1 of a latent cache; None is any.
        dim_pairs: the pairs (dim_qk, dim_v) that it takes, from plain to wild, in place of the next three; None is any pair within these.
        dim_multiple: head dims are multiples of it.
        dim_max: largest head dim.
        equal_dims: whether dim_v must equal dim_qk.
        empty: whether batch, seq_q and seq_k may be 0.
        scales: the scales that are right: signs ("positive", "zero", "negative"), "default" for 1 / sqrt(dim_qk), and numbers.
        layouts: of `Storage`.
        contiguous: whether every tensor must be contiguous, in the first of `layouts`. It stands for gaps, expand, strided,
            transposed and far_strides that are False, and leaves out a dO that is expanded or transposed.
        gaps: whether rows may be padded (strides larger than the row).
        unaligned: whether pointers and strides may be no multiple of 16 bytes.
        far_strides: whether tensors may span 2^31 elements and more, as by the stride of a batch, head, row or page.
        expand: whether k and v may have stride 0.
        kv: of `Storage`: whether K and V are `separate` tensors or V lies in the buffer of K (`shared`), or both.
        strided: whether slopes, sink and dlse may have any strides.
        transposed: whether the last axis of q, k, v and a bias may be any but contiguous.
        non_finite: whether NaN and Inf inside the declared lengths are drawn.
        backward: whether it has gradients.
        dlse: whether a gradient may arrive through LSE.
        launch: names of launch parameters that a case may set, with the values of each.
        launch_configs: instead of `launch`, whole configurations, such as those of an autotuned kernel: each a mapping of names to values.
        even_launches: whether each configuration is drawn as often as the default one, with lengths at multiples of its values and one
            beside; otherwise one case in six has the default one, and on a GPU two in three.
        compiles: whether head dims, dtype, mask, modifications, alignment, page size and launch parameters make a new compilation
            each; on a GPU such a subject is drawn from a finite list of them.
        traced: whether `torch.compile` traces the subject: numbers of heads, a batch of one, scales, layouts and sets of gradients make a
            new compilation each then, too.
        also: an additional condition: returns the reason why a case is not supported, or None. Draws that it refuses are thrown away.

    Raises:
        UsageError: a declaration is unknown, or no case fulfils all of them; the message names it and what is accepted.
    """

    dtypes: tuple[str, ...] = DTYPES
    precisions: tuple[str, ...] = ("ieee",)
    masks: tuple[str, ...] = ()
    required_masks: tuple[str, ...] = ()
    combine_masks: bool = True
    causal: tuple[str, ...] = ("top-left", "bottom-right")
    rectangular_causal: bool = True
    window_sides: tuple[str, ...] = ("left", "right")
    window_alignments: tuple[str, ...] = ("top-left",)
    logits: tuple[str, ...] = ()
    wild_slopes: bool = True
    huge_modifiers: bool = False
    dropout: bool = False
    banded_trees: bool = False
    entry_trees: bool = False
    block_multiple: int = 16
    selections: Selections = field(default_factory=Selections)
    page_sizes: tuple[int, ...] = ()
    always_paged: bool = False
    freed_pages: bool = True
    quantised: tuple[str, ...] = ()
    quantised_scales: tuple[str, ...] = ("tensor", "head", "token", "block")
    quantised_blocks: tuple[int, ...] = ()
    quantised_q: tuple[str, ...] = ("values",)
    zero_points: bool = False
    seq_q: Sequence[int] | None = None
    seq_k: Sequence[int] | None = None
    max_seq_q: int | None = None
    seq_multiple: int = 1
    square: bool = False
    heads_q: Sequence[int] | None = None
    group_sizes: Sequence[int] | None = None
    gqa: bool = True
    heads_kv: Sequence[int] | None = None
    dim_pairs: Sequence[tuple[int, int]] | None = None
    dim_multiple: int = 8
    dim_max: int = 256
    equal_dims: bool = False
    empty: bool = False
    scales: tuple[str | float, ...] = ("positive",)
    layouts: tuple[str, ...] = ("bhsd", "bshd")
    contiguous: bool = False
    gaps: bool = True
    unaligned: bool = True
    far_strides: bool = True
    expand: bool = True
    kv: tuple[str, ...] = ("separate",)
    strided: bool = False
    transposed: bool = False
    non_finite: bool = True
    backward: bool = True
    dlse: bool = False
    launch: tuple[tuple[str, tuple[int, ...]], ...] = ()
    launch_configs: Sequence[Mapping[str, int] | Launch] = ()
    even_launches: bool = True
    compiles: bool = True
    traced: bool = False
    also: Callable[[Case], str | None] | None = None

    def __post_init__(self) -> None:
        from flashverify.case.supports_checks import checked

        for name, value in checked(self).items():
            object.__setattr__(self, name, value)

    def refusal(self, case: Case) -> str | None:
        """Why `case` is not supported, naming the axis and its value; None where it is."""
        from flashverify.case.refusals import rules

        for refused, reason in rules(self, case):
            if refused:
                return reason
        return self.refused_by_also(case)

    def refused_by_also(self, case: Case) -> str | None:
        """The reason that `also` gives; None where it gives none, or there is no such condition.

        Raises:
            UsageError: it returned something else than text or None.
        """
        reason = self.also(case) if self.also is not None else None
        if reason is None or isinstance(reason, str):
            return reason
        raise UsageError(
            f"Supports(also=...) returned {reason!r} for {case}, which is not accepted: None where the case is supported, "
            "otherwise the reason why it is not, as text"
        )

    def rows(self) -> Lengths:
        """The query rows that a sequence may have, empty ones left out."""
        declared = () if self.seq_q is None else (self.seq_q,)
        return Lengths(declared=declared, multiple=self.seq_multiple, most=self.max_seq_q)

    def keys(self) -> Lengths:
        """The keys that a sequence may have, empty ones left out."""
        return Lengths(declared=() if self.seq_k is None else (self.seq_k,), multiple=self.seq_multiple)

    def declares_lengths(self, parts: frozenset[str] = frozenset()) -> bool:
        """Whether lengths are more than small numbers at will, in cases with these parts of the mask."""
        rows = self.max_seq_q is not None and "packed" in parts
        return rows or self.square or self.seq_multiple > 1 or self.seq_q is not None or self.seq_k is not None

    def launches(self) -> tuple[Launch, ...]:
        """Every launch configuration that is declared, beside the default one, in the order of the declaration."""
        if self.launch_configs:
            return cast("tuple[Launch, ...]", self.launch_configs)
        if not self.launch:
            return ()
        names = [name for name, _ in self.launch]
        combinations = itertools.product(*(values for _, values in self.launch))
        return tuple(tuple(sorted(zip(names, values, strict=True))) for values in combinations)
