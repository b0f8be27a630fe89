"""The backward in one walk: numbers and barriers on a CPU (`gluon_on_cpu`) against the gradients in float64."""

import math

import numpy as np
import pytest

from tests.kernels import gluon_on_cpu
from tests.kernels.gluon_values import Array, Pointer, Tiles

pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")

from single_pass.kernel import single_pass_kernel

D = 32
SCALE = D**-0.5
TOLERANCE = 2e-3  # of the largest element


@pytest.fixture
def _adding(monkeypatch):
    """What this kernel alone does: tiles that are added to memory, counters, and halves of tiles."""

    def reduce_add(tiles, place, buffer):
        b, h, row, channel = place
        tiles.x[b, h, row : row + buffer.shape[2], channel : channel + buffer.shape[3]] += buffer[0, 0]

    def atomic_add(pointer, x, sem):
        found = pointer.x[int(pointer.place)]
        pointer.x[int(pointer.place)] += x
        return found

    monkeypatch.setitem(gluon_on_cpu._NAMES, "reduce_add", reduce_add)
    monkeypatch.setitem(gluon_on_cpu._NAMES, "in_memory", lambda: None)
    language = gluon_on_cpu._LANGUAGE
    monkeypatch.setattr(language, "atomic_add", atomic_add, raising=False)
    monkeypatch.setattr(language, "NVMMASharedLayout", lambda **_: None, raising=False)
    monkeypatch.setattr(
        Array, "slice", lambda x, first, size, axis: x[(slice(None),) * axis + (slice(first, first + size),)], False
    )


def exact(q, k, v, do, causal):
    """Base-2 LSE, delta, and the gradients of q (over the scale), k and v."""
    group = len(q) // len(k)
    q, k, v, do = (x.astype(np.float64) for x in (q, np.repeat(k, group, 0), np.repeat(v, group, 0), do))
    s = q @ k.swapaxes(1, 2) * SCALE
    if causal:
        s = np.where(np.tri(*s.shape[1:], dtype=bool), s, -np.inf)
    p = np.exp(s)
    total = p.sum(-1, keepdims=True)
    p /= total
    dp = do @ v.swapaxes(1, 2)
    delta = (p * dp).sum(-1)
    ds = p * (dp - delta[..., None])
    dk, dv = ds.swapaxes(1, 2) @ q * SCALE, p.swapaxes(1, 2) @ do
    return np.log2(total[..., 0]), delta, ds @ k, *(x.reshape(-1, group, *x.shape[1:]).sum(1) for x in (dk, dv))


def errors(sq, sk, heads, kv_heads, causal, ordered):
    """Of dQ, dK and dV, relative to the largest element, and how many tiles each counter has."""
    rng = np.random.default_rng(0)
    shapes = ((heads, sq), (kv_heads, sk), (kv_heads, sk), (heads, sq))
    q, k, v, do = (rng.standard_normal((1, h, s, D)).astype(np.float16) for h, s in shapes)
    lse2, delta, *right = exact(q[0], k[0], v[0], do[0], causal)
    dk, dv, dq = np.full_like(k, np.nan), np.full_like(k, np.nan), np.zeros(q.shape, np.float32)
    sums, added = Tiles(dq, 64), np.zeros(heads * sq // 64, np.int64)
    sums.block_type.shape = [1, 1, 64, D // 2]
    rows = (Pointer(x.astype(np.float32).ravel()) for x in (lse2, delta))
    numbers = (SCALE, SCALE * math.log2(math.e), heads, heads // kv_heads, sq, sk)
    tiles = [Tiles(x, 64) for x in (q, k, v, do, dk, dv)]
    choices = (causal, ordered, 2, True, True)
    gluon_on_cpu.run(single_pass_kernel, kv_heads * sk // 128, *tiles, sums, *rows, Pointer(added), *numbers, *choices)
    return [abs(x[0] - y).max() / abs(y).max() for x, y in zip((dq, dk, dv), right, strict=True)], added


@pytest.mark.usefixtures("_adding")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("sq", "sk", "heads", "kv_heads", "causal"),
    [(256, 384, 2, 1, False), (384, 384, 2, 2, True), (320, 256, 4, 2, True)],
)
def test_the_gradients_of_one_walk(sq, sk, heads, kv_heads, causal, ordered):
    found, added = errors(sq, sk, heads, kv_heads, causal, ordered)

    assert max(found) < TOLERANCE
    if ordered:
        rows = 64 * np.arange(sq // 64) + 63
        assert (
            added.reshape(heads, -1).tolist()
            == [(np.minimum(rows // 128 + 1, sk // 128) if causal else np.full(sq // 64, sk // 128)).tolist()] * heads
        )
