"""Codes of K and V: where they lie, and what they stand for.

Codes lie one behind the other, or in the pages of a cache, and with them the scales and zero points of the keys of each page. What
serves more than a page lies apart: then its stride from page to page is 0.

A key's value is `scale * (code - zero)`. Neighbouring keys of a head share a scale and a zero point, or all of a head or of the
tensor do: then their strides are 0. Codes are decoded by arithmetic on the bits of fp16, which holds each of their numbers and which
every GPU has.
"""

from typing import Annotated, Any, NamedTuple

import triton
import triton.language as tl

from flashverify_kernels.device.arguments import Float32s, Int32s, PageTable

E4M3 = tl.constexpr(0)
E5M2 = tl.constexpr(1)
INT8 = tl.constexpr(2)
INT4 = tl.constexpr(3)
OPERAND = tl.constexpr(0)
FOLDED = tl.constexpr(1)
FP8_WEIGHTS = tl.constexpr(2)

Bytes = Annotated[Any, "*u8"]
"""A uint8 tensor."""


class Scales(NamedTuple):
    """Scales `[batch or page, kv head, group of keys]`: pointer and strides, of which that of the batch or that of the page is 0."""

    ptr: Float32s
    batch: tl.int64
    page: tl.int64
    head: tl.int64
    step: tl.int64


class ZeroPoints(NamedTuple):
    """Zero points `[batch or page, kv head, group of keys]`: pointer, None without them, and strides as those of scales."""

    ptr: Int32s
    batch: tl.int64
    page: tl.int64
    head: tl.int64
    step: tl.int64


class RowScales(NamedTuple):
    """Scales of a q in codes, `[batch, head, group of rows]`: pointer, None where q is no codes, strides, and the rows of a group."""

    ptr: Float32s
    batch: tl.int64
    head: tl.int64
    step: tl.int64
    rows: tl.int32


class Codes(NamedTuple):
    """Codes `[batch or page, kv head, key, channel]` of a byte each, of `INT4` two in a byte, with their scales and zero points.

    Attributes:
        ptr: the codes, last stride 1.
        batch: stride, bytes, 0 with pages; page (0 without pages), head and row likewise.
        scale: of each group of keys.
        zero: the zero points, or None.
        keys_per_scale: neighbouring keys that share a scale.
        pages: which pages hold the keys of a sequence; the pointer is None without pages.
    """

    ptr: Bytes
    batch: tl.int64
    page: tl.int64
    head: tl.int64
    row: tl.int64
    scale: Scales
    zero: ZeroPoints
    keys_per_scale: tl.int32
    pages: PageTable


@triton.jit
def decoded(x, FORMAT: tl.constexpr):
    """The numbers of codes, fp16, exact: of `INT4` those of the low half of each element."""
    wide = x.to(tl.uint16)
    if FORMAT == E4M3:
        bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)  # an fp16 number of 2^-8 times the size
        number = bits.to(tl.float16, bitcast=True) * 256.0
        number = tl.where((x & 0x7F) == 0x7F, float("nan"), number)
    elif FORMAT == E5M2:
        number = (wide << 8).to(tl.float16, bitcast=True)
    elif FORMAT == INT8:
        number = ((wide ^ 0x80) | 0x6400).to(tl.float16, bitcast=True) - 1152.0  # the low bits of 1024 count ones
    else:
        number = ((wide & 15) | 0x6400).to(tl.float16, bitcast=True) - 1024.0
    return number


@triton.jit
def queries(q, q_scale, b, h, i, there, FORMAT: tl.constexpr, MODE: tl.constexpr, DTYPE: tl.constexpr):
    """The operand of a tile of rows, and what multiplies its logits: 1, or the scales of the rows `[len(i)]` where these are folded.

    Args:
        q: the tile, values or codes.
        q_scale: of the codes.
        b: the sequence.
        h: the head of each row, or of all.
        i: rows of the sequence.
        there: which of them exist.
        FORMAT: of the codes.
        MODE: `OPERAND` or a folded one.
        DTYPE: of the operand, where q is codes.
    """
    factor = tl.full([1], 1.0, tl.float32)
    if q_scale.ptr is not None:
        group = (i // q_scale.rows).to(tl.int64)
        offset = b.to(tl.int64) * q_scale.batch + h.to(tl.int64) * q_scale.head + group * q_scale.step
        scale = tl.load(q_scale.ptr + offset, mask=there, other=0.0)
        number = decoded(q, FORMAT).to(tl.float32)
        if MODE == OPERAND:
            number = number * scale[:, None]
        else:
            factor = scale
        q = number.to(DTYPE)
    return q, factor


@triton.jit
def page_and_slot(codes, b, j, keep):
    """Where keys `j` lie: the page and the key within it; without pages one page, and the number of the key."""
    if codes.pages.ptr is None:
        page = j * 0
        slot = j
    else:
        page = tl.load(codes.pages.ptr + b.to(tl.int64) * codes.pages.batch + j // codes.pages.size, mask=keep, other=0)
        slot = j % codes.pages.size
    return page, slot


@triton.jit
def load_groups(groups, b, hk, page, j, keep, keys_per_scale):
    """The scale or the zero point of the keys `j` of `page`; 0 for keys that are not read."""
    group = (j // keys_per_scale).to(tl.int64)
    offset = b.to(tl.int64) * groups.batch + hk.to(tl.int64) * groups.head + group * groups.step
    offset += page.to(tl.int64) * groups.page
    return tl.load(groups.ptr + offset, mask=keep, other=0)


@triton.jit
def load_scales(codes, b, hk, j, keep):
    """The scales of keys `j`, fp32."""
    page, slot = page_and_slot(codes, b, j, keep)
    return load_groups(codes.scale, b, hk, page, slot, keep, codes.keys_per_scale)


@triton.jit
def load_only_scale(codes, b, hk, keep):
    """The scale of a head all of whose keys share one."""
    offset = b.to(tl.int64) * codes.scale.batch + hk.to(tl.int64) * codes.scale.head
    return tl.load(codes.scale.ptr + offset, mask=keep, other=0)


@triton.jit
def common_scale(codes, b, hk, some, ONE: tl.constexpr):
    """The scale of all keys of a head, `[1]` fp32, where there is one and `some` key; else 0."""
    scale = tl.full([1], 0.0, tl.float32)
    if ONE:
        scale += load_only_scale(codes, b, hk, some)
    return scale


@triton.jit
def load_bytes(codes, b, hk, j, keep, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr,
               FORMAT: tl.constexpr, WORDS: tl.constexpr):  # fmt: skip
    """The codes of keys `j`, `[len(j), BLOCK_C]` uint8, of `INT4` one in each low half; the code of 0 without zero points where there is none.

    `EVEN` as in `address.locate`; `WORDS`: every row of codes starts on 16 bytes.
    """
    PACKED: tl.constexpr = 2 if FORMAT == INT4 else 1
    c = tl.arange(0, BLOCK_C // PACKED)[None, :]
    page, slot = page_and_slot(codes, b, j, keep)
    offset = b.to(tl.int64) * codes.batch + hk.to(tl.int64) * codes.head + slot.to(tl.int64) * codes.row
    offset += page.to(tl.int64) * codes.page
    there = keep[:, None]
    if not EVEN:
        there = there & (c < channels8 * 8 // PACKED)
    ptrs = codes.ptr + offset[:, None] + c
    if WORDS:
        ptrs = tl.multiple_of(ptrs, [16, 16])
    if FORMAT == INT4:
        pair = tl.load(ptrs, mask=there, other=0x88)
        x = tl.interleave(pair & 15, pair >> 4)
    else:
        x = tl.load(ptrs, mask=there, other=0)
    return x


@triton.jit
def load_numbers(codes, b, hk, j, keep, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr,
                 FORMAT: tl.constexpr, WORDS: tl.constexpr):  # fmt: skip
    """`code - zero` of keys `j`, `[len(j), BLOCK_C]`, exact: fp32 with zero points, else fp16; 0 where there is no code."""
    number = decoded(load_bytes(codes, b, hk, j, keep, channels8, BLOCK_C, EVEN, FORMAT, WORDS), FORMAT)
    if codes.zero.ptr is not None:
        page, slot = page_and_slot(codes, b, j, keep)
        zero = load_groups(codes.zero, b, hk, page, slot, keep, codes.keys_per_scale)
        number = number.to(tl.float32)
        number = number - zero.to(tl.float32)[:, None]
        there = keep[:, None] & (tl.arange(0, BLOCK_C)[None, :] < channels8 * 8)
        number = tl.where(there, number, 0.0)
    elif FORMAT == INT4:
        number = number - 8.0
    return number
