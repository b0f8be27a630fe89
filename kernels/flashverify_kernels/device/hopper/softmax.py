from triton.experimental import gluon
from triton.experimental.gluon import language as gl


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
def online_step(z, i, n0, edges, m_i, l_i, UPPER: gl.constexpr, MASKED: gl.constexpr):
    """As `device.softmax.online_step`, of the tile of keys from `n0` on; `edges` are the number of keys, `low` and `high`."""
    if MASKED:
        sk, low, high = edges
        KEY: gl.constexpr = gl.SliceLayout(0, z.type.layout)
        j = n0 + gl.arange(0, z.shape[1], KEY)
        end = i * 0 + sk
        if UPPER:
            end = gl.minimum(i + 1 + high, sk)
        see = j[None, :] < end[:, None]
        if low is not None:
            see = see & (j[None, :] >= (i + low)[:, None])
        z = gl.where(see, z, float("-inf"))
    m_new = gl.maximum(m_i, gl.max(z, 1))
    pivot = gl.where(m_new == float("-inf"), 0.0, m_new) if MASKED else m_new
    p = gl.exp2(z - pivot[:, None])
    alpha = gl.exp2(m_i - pivot)
    return p, m_new, l_i * alpha + gl.sum(p, 1), alpha
