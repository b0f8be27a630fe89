"""The walk over full tiles in which the product of weights and values lags a tile behind, so that it runs beside the next softmax."""

import triton
import triton.language as tl

from flashverify_kernels.device.address import fetch_tile
from flashverify_kernels.device.dropout import drop, keep_tile
from flashverify_kernels.device.logits import logits
from flashverify_kernels.device.softmax import online_step


@triton.jit
def lagged_walk(
    q,
    k_tiles,
    v_tiles,
    kv_place,
    i,
    bh,
    start,
    stop,
    ends,
    state,
    terms,
    head,
    dropout,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take the full tiles from key `start` to `stop` into the state of the rows.

    The operations and their order are those of one tile after another, bit for bit. The weights are carried in fp32 and rounded where they are used: of a left operand that was carried in its own type, the compiler
    would wait for the product at once.

    Args:
        q: `[BLOCK_M, BLOCK_D]`.
        k_tiles: descriptor of K.
        v_tiles: descriptor of V.
        kv_place: batch and head of K and V.
        i: `[BLOCK_M]` row numbers.
        bh: number of the stream of dropout.
        start: first key, of a tile.
        stop: first key behind the tiles.
        ends: how many rows and how many keys count.
        state: m_i, l_i and the accumulator.
        terms: what a logit is made of.
        head: what `head_terms` makes of them.
        dropout: which weights are dropped.
        BLOCK_N: keys per tile.
        BLOCK_D: channels of a tile of K.
        BLOCK_DV: channels of a tile of V.
        PRECISION: of dot products of fp32 operands.

    Returns:
        The state behind the tiles.
    """
    b, h = kv_place
    m_i, l_i, acc = state
    if start < stop:
        k = fetch_tile(k_tiles, b, h, start, BLOCK_N, BLOCK_D)  # [BLOCK_N, BLOCK_D]
        dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
        p, m_i, l_i, alpha = _weights(dot, i, start, bh, ends, m_i, l_i, terms, head, dropout, BLOCK_N)
        for t in range(start + BLOCK_N, stop, BLOCK_N):
            k = fetch_tile(k_tiles, b, h, t, BLOCK_N, BLOCK_D)
            dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)
            v = fetch_tile(v_tiles, b, h, t - BLOCK_N, BLOCK_N, BLOCK_DV)  # [BLOCK_N, BLOCK_DV]
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)  # [BLOCK_M, BLOCK_DV]
            p, m_i, l_i, alpha = _weights(dot, i, t, bh, ends, m_i, l_i, terms, head, dropout, BLOCK_N)
        v = fetch_tile(v_tiles, b, h, stop - BLOCK_N, BLOCK_N, BLOCK_DV)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)
    return m_i, l_i, acc


@triton.jit
def _weights(dot, i, n0, bh, ends, m_i, l_i, terms, head, dropout, BLOCK_N: tl.constexpr):
    """The weights of one full tile, `[BLOCK_M, BLOCK_N]` fp32, and the running statistics with it; see `online_step`."""
    j = n0 + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    z = logits(dot, i[:, None], j[None, :], ends[0], ends[1], terms, head, False)
    p, m_i, l_i, alpha = online_step(z, z, m_i, l_i, False)
    if dropout.keep_share is not None:
        p = drop(p, keep_tile(i, n0, bh, dropout, BLOCK_N))
    return p, m_i, l_i, alpha
