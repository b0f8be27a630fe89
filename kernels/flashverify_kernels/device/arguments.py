"""The records that kernels take as arguments: what belongs together travels together, from the host to the device function.

A field that is a number has the type that it declares here, whatever its value (see `jit.kernel`); a pointer or a number that
may be absent is None then, which is part of the compile key. All strides are in elements, and a broadcast axis has stride 0.
"""

from typing import Annotated, Any, NamedTuple

import triton.language as tl

Elements = Annotated[Any, "elements"]
"""A tensor in the dtype of q, or None."""
Int32s = Annotated[Any, "*i32"]
"""An int32 tensor, or None."""
Float32s = Annotated[Any, "*fp32"]
"""An fp32 tensor, or None."""
Factor = Annotated[Any, "fp32"]
"""A float, or None."""
Width = Annotated[Any, "i32"]
"""A whole number from 2 on, or None: Triton makes a constant of a 1 that has no declared type."""


class View(NamedTuple):
    """A tensor `[batch, head, row, channel or key]` whose last axis has stride 1."""

    ptr: Elements
    batch: tl.int64
    head: tl.int64
    row: tl.int64


class PartView(NamedTuple):
    """As many tensors as there are parts, `[part, batch, head, row, channel]`."""

    ptr: Elements
    part: tl.int64
    batch: tl.int64
    head: tl.int64
    row: tl.int64


class Words(NamedTuple):
    """A bit per query and key, `[B or 1, heads or 1, sq, words]` int32: key `bits_start` + n of a row is bit n % 32 of word n // 32."""

    ptr: Int32s
    batch: tl.int64
    head: tl.int64
    row: tl.int64


class Blocks(NamedTuple):
    """A block-sparse mask: the tables of the live blocks along the walked axis, see `schedule`, and the size of a block."""

    ptr: Int32s
    batch: tl.int64
    head: tl.int64
    rows: tl.int32
    keys: tl.int32


class PageTable(NamedTuple):
    """Which pages hold the keys of a sequence, `[B, pages of a sequence]` int32, and the keys per page."""

    ptr: Int32s
    batch: tl.int64
    size: tl.int32


class Statistics(NamedTuple):
    """What is known of each row: `[B, heads, sq]` fp32 tensors of equal strides.

    Attributes:
        lse2: LSE, log base 2.
        delta: rowsum(dO * O) - dLSE.
        dlse: gradient of the natural LSE.
        batch: stride.
        head: stride.
    """

    lse2: Float32s
    delta: Float32s
    dlse: Float32s
    batch: tl.int64
    head: tl.int64


class Sequences(NamedTuple):
    """Where the rows of a sequence lie and how many of them count.

    Attributes:
        cu_q: `[n + 1]` cumulative numbers of queries of packed sequences.
        cu_k: `[n + 1]` cumulative numbers of keys.
        q_lengths: `[B]` query lengths.
        k_lengths: `[B]` key lengths.
        packed: number of packed sequences; 0 without any.
        halvings: how often a range of so many is halved until one is left.
    """

    cu_q: Int32s
    cu_k: Int32s
    q_lengths: Int32s
    k_lengths: Int32s
    packed: tl.int32
    halvings: tl.int32


class Sizes(NamedTuple):
    """Sizes of the problem.

    Attributes:
        heads: query heads.
        kv_heads: heads of k and v.
        group: query heads per kv head.
        sq: number of queries, of the longest sequence where they are packed.
        sk: number of keys, likewise.
        d8: head dimension of q and k, in units of 8.
        dv8: head dimension of v, in units of 8.
    """

    heads: tl.int32
    kv_heads: tl.int32
    group: tl.int32
    sq: tl.int32
    sk: tl.int32
    d8: tl.int32
    dv8: tl.int32


class MaskParts(NamedTuple):
    """The numbers and tables of a mask; which of them count is said by `MASK`, see `mask`.

    Attributes:
        left: keys that the band holds before the diagonal.
        right: keys that the band holds after the diagonal.
        align_end: 1 if the diagonal ends at the last key, 0 if it starts at the first.
        tree: 1 if the bits start at the upper edge of the band, 0 if at key 0.
        prefix_lengths: `[sequences]` keys that no upper edge of the band hides, or None.
        bits: the bits.
        blocks: the live blocks.
    """

    left: tl.int32
    right: tl.int32
    align_end: tl.int32
    tree: tl.int32
    prefix_lengths: Int32s
    bits: Words
    blocks: Blocks


class Relative(NamedTuple):
    """A relative bias by distance: `[heads, width]`, natural units; the middle of a row is that of distance 0."""

    ptr: Float32s
    width: Width


class LogitTerms(NamedTuple):
    """What a logit is made of besides the dot product, see `logits`.

    Attributes:
        scale: softmax scale.
        scale_log2: softmax scale times log2(e).
        cap_ratio: softmax scale / softcap, or None.
        cap_log2: softcap times log2(e), or None.
        slopes: `[heads]` ALiBi slopes.
        align_distances: 1 if ALiBi and the relative bias measure distances from a diagonal that ends at the last key, 0 from one that
            starts at the first.
        bias: `[B or 1, heads or 1, sq, sk]`, natural units.
        sink: `[heads]` logits of the sinks, natural units; the backward needs none.
        relative: what is added by distance.
    """

    scale: tl.float32
    scale_log2: tl.float32
    cap_ratio: Factor
    cap_log2: Factor
    slopes: Float32s
    align_distances: tl.int32
    bias: View
    sink: Float32s
    relative: Relative = Relative(None, None)


class DropoutDraws(NamedTuple):
    """Which weights are dropped, see `dropout`.

    Attributes:
        keep_share: 1 - p, or None without dropout.
        keep_scale: 1 / (1 - p), or None without dropout.
        seed: 64 bits.
        offset: 32 bits.
        threshold: floor(p * 2^32).
    """

    keep_share: Factor
    keep_scale: Factor
    seed: tl.uint64
    offset: tl.uint32
    threshold: tl.uint32


class Head(NamedTuple):
    """The rows of one head: pointer to the first of them, and their stride. On the device only."""

    ptr: Any
    row: Any


class Band(NamedTuple):
    """Where the edges of a mask lie in one sequence, see `mask`. On the device only.

    Attributes:
        low: row i sees no key before i + low.
        high: row i sees no key after i + high, but for those of the prefix.
        prefix: number of keys of the prefix; 0 without one.
    """

    low: Any
    high: Any
    prefix: Any


class HeadTerms(NamedTuple):
    """The terms of one query head; what is absent is 0 and not read. On the device only.

    Attributes:
        slope_log2: ALiBi slope times log2(e).
        shift: row i stands at position i + shift among the keys.
        bias: pointer to the first element of the bias.
        relative: pointer to the relative bias of distance 0.
    """

    slope_log2: Any
    shift: Any
    bias: Any
    relative: Any
