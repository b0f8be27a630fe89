from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LANE = gl.constexpr(6)
"""Bits of the number of a column of a product that say which lane of a warp has it."""


@gluon.jit
def seen(i, n0, edges, z, UPPER: gl.constexpr):
    """Which keys of the tile from `n0` on the queries `i` see, in the shape of `z`; `edges` are the number of keys, `low` and `high`."""
    sk, low, high = edges
    j = n0 + gl.arange(0, z.shape[1], gl.SliceLayout(0, z.type.layout))
    end = i * 0 + sk
    if UPPER:
        end = gl.minimum(i + 1 + high, sk)
    see = j[None, :] < end[:, None]
    if low is not None:
        see = see & (j[None, :] >= (i + low)[:, None])
    return see


@gluon.jit
def online_step(z, i, n0, edges, masked, m_i, l_i, UPPER: gl.constexpr):
    """As `device.softmax.online_step`, of the tile of keys from `n0` on.

    Args:
        z: as there.
        i: the queries.
        n0: the first key.
        edges: the number of keys, `low` and `high`.
        masked: whether the tile needs its mask, see `needs_mask`. The branch keeps comparisons behind the wait for the product: before
            it, their results take registers, and most of them are packed into words and unpacked again.
        m_i: as there.
        l_i: as there.
        UPPER: whether there is an upper edge.
    """
    if masked:
        z = _hidden(z, i, n0, edges, UPPER)
    m_new = gl.maximum(m_i, gl.max(z, 1))
    pivot = gl.where((m_new == float("-inf")) & masked, 0.0, m_new)
    p = gl.exp2(z - pivot[:, None])
    alpha = gl.exp2(m_i - pivot)
    return p, m_new, l_i * alpha + gl.sum(p, 1), alpha


@gluon.jit
def needs_mask(m0, n0, sure, low, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """Whether any of the queries from `m0` on does not see a key from `n0` on; they all see those before `sure`, as far as an upper edge says."""
    masked = n0 + BLOCK_N > sure
    if low is not None:
        masked = masked | (n0 < m0 + BLOCK_M - 1 + low)
    return masked


@gluon.jit
def _hidden(z, i, n0, edges, UPPER: gl.constexpr):
    """The logits, -inf where a query does not see the key.

    Of the number of a key in the tile, the bits that a lane decides go to the other side of the comparison, where they are subtracted once a
    row. The rest is a constant of the register: one comparison with a number in its code.
    """
    sk, low, high = edges
    j = gl.arange(0, z.shape[1], gl.SliceLayout(0, z.type.layout))
    lane = (j & LANE)[None, :]
    column = (j & ~LANE)[None, :]
    end = i * 0 + (sk - n0)
    if UPPER:
        end = gl.minimum(i + (1 + high - n0), sk - n0)
    see = column < end[:, None] - lane
    if low is not None:
        see = see & (column >= (i + (low - n0))[:, None] - lane)
    return gl.where(see, z, float("-inf"))
