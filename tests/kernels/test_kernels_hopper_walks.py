"""The walks of the kernels for Hopper GPUs: numbers and barriers on a CPU (`gluon_on_cpu`) against float64 attention."""

import itertools
import math

import numpy as np
import pytest
import torch

from flashverify_kernels import BlockMask
from flashverify_kernels.hopper import dkdv_form
from tests.fast_tier import fast_one_in
from tests.kernels.gluon_on_cpu import DeadlockError, on_cpu, run
from tests.kernels.gluon_values import Pointer, Tiles, Whole

pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")

from flashverify_kernels.device.hopper import barriers, dkdv, forward, narrow, rows, softmax, walk
from flashverify_kernels.device.hopper import dq as dq_kernel

D = 16
TOLERANCE = 8e-3  # of values of about 1 that are rounded to fp16
UNSEEN = -(10**6), -(10**6) + 5  # edges of a window that lies before all keys

PROBLEMS = [  # queries, keys, query heads, kv heads, low, high
    (130, 200, 1, 1, None, None),
    (200, 130, 2, 1, None, 0),
    (200, 333, 1, 1, None, 133),
    (200, 200, 1, 1, 0, 0),
    (300, 300, 2, 1, -5, 0),
    (640, 640, 1, 1, -128, 0),
    (700, 300, 1, 1, -60, 10),  # the last rows see nothing
    (333, 130, 2, 1, -280, -203),  # the first rows see nothing
    (129, 700, 1, 1, 500, 571),
    (700, 900, 1, 1, -300, 129),
    (129, 65, 2, 2, 0, 65),
    (700, 333, 1, 1, -128, None),
    (65, 900, 1, 1, 500, None),
    (200, 300, 1, 1, -200, 300),
    (17, 1, 1, 1, -3, 0),
    (130, 130, 1, 1, *UNSEEN),
]

PATTERNS = [  # a problem, queries and keys per block, share of live blocks
    ((130, 200, 1, 1, None, None), (128, 128), 1.0),
    ((700, 900, 2, 1, None, None), (128, 128), 0.5),
    ((640, 640, 4, 2, None, None), (128, 256), 0.3),
    ((300, 1200, 1, 1, None, None), (256, 128), 0.2),
    ((300, 300, 2, 1, None, None), (128, 128), 0.0),
    ((700, 333, 2, 1, None, 0), (128, 128), 0.6),
    ((700, 333, 2, 2, None, -367), (128, 128), 0.7),  # the last queries are a part of a tile, which is no full one
    ((900, 900, 1, 1, -300, 0), (128, 128), 0.6),
    ((900, 1200, 1, 1, -300, 400), (256, 384), 0.5),
    ((700, 900, 2, 2, 100, None), (128, 128), 0.5),
]


def exact(q, k, v, do, see):
    """O, base-2 LSE, delta, dQ, dK and dV in float64."""
    group, scale = q.shape[0] // k.shape[0], D**-0.5
    q, k, v, do = (x.astype(np.float64) for x in (q, np.repeat(k, group, 0), np.repeat(v, group, 0), do))
    s = np.where(see, q @ k.swapaxes(1, 2) * scale, -np.inf)
    pivot = np.maximum(s.max(-1, keepdims=True), -1e9)
    e = np.exp(s - pivot)
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    o = p @ v
    delta = (do * o).sum(-1)
    ds = p * (do @ v.swapaxes(1, 2) - delta[..., None])
    dk, dv = (x.reshape(-1, group, *x.shape[1:]).sum(1) for x in (ds.swapaxes(1, 2) @ q * scale, p.swapaxes(1, 2) @ do))
    with np.errstate(divide="ignore"):
        return o, (pivot + np.log(total))[..., 0] / math.log(2), delta, ds @ k * scale, dk, dv


def tables_of(live, rows, keys):
    """The arguments of a pattern, along the keys and along the queries."""
    mask = BlockMask.from_bool(torch.from_numpy(live)[None], rows, keys)
    tables = {"keys": mask.along_keys, "queries": mask.along_queries}
    return {
        axis: (Pointer(x.numpy().ravel()), 0, x.stride(1) if len(live) > 1 else 0, rows, keys)
        for axis, x in tables.items()
    }


def computed(problem, kernels=("forward", "narrow", "dq", "dkdv"), size=None, share=1.0, most=2, spoiled=()):
    """What the kernels give and what is exact, by output.

    At most `most` programs share the tiles of the wide forward and of dQ. Queries that are `spoiled` are NaN for the kernels alone.
    """
    sq, sk, heads, kv_heads, low, high = problem
    rng = np.random.default_rng(0)
    shapes = (heads, sq), (kv_heads, sk), (kv_heads, sk), (heads, sq)
    q, k, v, do = (rng.standard_normal((1, h, s, D)).astype(np.float16) for h, s in shapes)
    i, j = np.arange(sq)[:, None], np.arange(sk)[None]
    see = (j >= i + (-math.inf if low is None else low)) & (j <= i + (math.inf if high is None else high))
    of_pattern = dict.fromkeys(("keys", "queries"), (None,) * 5)
    if size is not None:
        live = rng.random((heads, -(-sq // size[0]), -(-sk // size[1]))) < share
        of_pattern = tables_of(live, *size)
        see = see & live.repeat(size[0], 1).repeat(size[1], 2)[:, :sq, :sk]
    o, lse2, delta, dq, dk, dv = exact(q[0], k[0], v[0], do[0], see)
    q[:, :, list(spoiled)] = np.nan
    scale, group = D**-0.5, heads // kv_heads
    edges = (heads, group, sq, sk, low, 0 if high is None else high)
    upper = high is not None
    found = {}
    for name, kernel, queries in (
        ("forward", forward.hopper_forward_kernel, 128),
        ("narrow", narrow.hopper_narrow_forward_kernel, 64),
    ):
        if name in kernels:
            own, own_lse2 = np.full_like(q, np.nan), np.full(heads * sq, np.nan, np.float32)
            places = (Tiles(q, 64), Tiles(k, 128), Tiles(v, 128), Tiles(own, 64))
            tiles = -(-sq // queries)
            programs = heads * tiles
            numbers = (scale * math.log2(math.e), *edges, *of_pattern["keys"], upper, 2)
            if name == "forward":
                paired = upper and low is None
                wide = tiles_of(sq, size, 0)
                programs = min(most, heads * (wide - wide // 2 if paired else wide))  # each has a tile
                numbers = (scale * math.log2(math.e), 1, *edges, *of_pattern["keys"], *[None] * 6, upper, paired, 2)
            run(kernel, programs, *places, Pointer(own_lse2), *numbers)
            found |= {f"{name} o": (own[0], o), f"{name} lse2": (own_lse2.reshape(heads, sq), lse2)}
    statistics = tuple(Pointer(x.astype(np.float32).ravel()) for x in (lse2, delta))
    if "dq" in kernels:
        own_dq = np.full_like(q, np.nan)
        numbers = (scale, scale * math.log2(math.e), 1, *edges, *of_pattern["keys"], *[None] * 6)
        numbers += (upper, upper and low is None, 3, 2)
        run(dq_kernel.hopper_dq_kernel, most, *(Tiles(x, 64) for x in (q, k, v, do, own_dq)), *statistics, *numbers)
        found |= {"dq": (own_dq[0], dq)}
    if "dkdv" in kernels:
        for width in (64, 128):
            form, _ = dkdv_form(width)
            own_dk, own_dv = np.full_like(k, np.nan), np.full_like(k, np.nan)
            tiles = [Tiles(x, 64) for x in (q, k, v, do, own_dk, own_dv)]
            numbers = (scale, scale * math.log2(math.e), *edges, *of_pattern["queries"], *[None] * 6, upper)
            programs = kv_heads * tiles_of(sk, size, 1, 64 * form["GROUPS"])
            run(dkdv.hopper_dkdv_kernel, programs, *tiles, *statistics, *numbers, *form.values())
            found |= {f"dk as of {width} channels": (own_dk[0], dk), f"dv as of {width} channels": (own_dv[0], dv)}
    return found


def tiles_of(length, size, axis, tile=128):
    """Tiles of an axis, those of whole blocks where there are any."""
    own = tile if size is None else size[axis]
    return -(-length // own) * (own // tile)


def wrong(problem, **pattern):
    found = computed(problem, **pattern)
    with np.errstate(invalid="ignore"):
        right = {n: (x == y) | (abs(x - y) <= TOLERANCE * (1 + abs(y))) for n, (x, y) in found.items()}
    return [name for name, x in right.items() if not x.all()]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("problem", fast_one_in(4, PROBLEMS, ids=str))
def test_walks_give_exact_attention_and_all_groups_of_warps_pass_the_same_tiles(problem):
    assert wrong(problem) == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize("problem", fast_one_in(4, PATTERNS, ids=str))
def test_walks_of_live_blocks_give_exact_attention(problem):
    problem, size, share = problem

    assert wrong(problem, size=size, share=share) == []


@pytest.mark.parametrize(
    "problem", [(1150, 140, 1, 1, None, None), (900, 300, 1, 1, None, 0), (700, 700, 1, 1, -5, None)]
)
def test_a_program_computes_many_tiles_of_queries_one_after_the_other(problem):
    assert wrong(problem, kernels=("forward", "dq"), most=1) == []


def test_queries_that_are_nan_leave_those_alone_that_the_program_computes_next():
    found = computed((400, 300, 1, 1, None, 0), ("forward",), most=1, spoiled=range(256, 384))

    o, exact_o = (x[:, :256] for x in found["forward o"])
    assert np.abs(o - exact_o).max() < TOLERANCE
    assert np.isnan(found["forward o"][0][:, 256:384]).all()


@pytest.mark.parametrize("low", [None, -1, 40])
def test_a_tile_needs_its_mask_where_a_query_does_not_see_a_key(low):
    for m0, n0, high in itertools.product(range(0, 40, 4), range(0, 64, 8), (-3, 0, 4, 62)):
        i, j = np.arange(m0, m0 + 4)[:, None], np.arange(n0, n0 + 8)
        hidden = (j > i + high) | (j < i + (-math.inf if low is None else low))

        sure = on_cpu(rows.sure_of)(Whole(m0), Whole(100), Whole(high), True)
        assert on_cpu(softmax.needs_mask)(Whole(m0), Whole(n0), sure, low, Whole(4), Whole(8)) == hidden.any()


def test_a_row_without_keys_is_exactly_empty():
    found = computed((130, 130, 1, 1, *UNSEEN))

    for name in ("forward", "narrow"):
        assert (found[f"{name} o"][0] == 0).all()
        assert np.isneginf(found[f"{name} lse2"][0]).all()


def test_a_walk_of_other_tiles_than_are_fetched_is_seen(monkeypatch):
    monkeypatch.setattr("tests.kernels.gluon_on_cpu.LONGEST_WAIT", 0.2)
    monkeypatch.setattr(walk.within, "fn", lambda begin, full_begin, full_end, end: (full_begin, full_end + 1))
    with pytest.raises(DeadlockError):
        computed((65, 896, 1, 1, 500, None), ("dkdv",))


def test_a_slot_that_is_never_released_is_seen(monkeypatch):
    monkeypatch.setattr(barriers.release, "fn", lambda empty, there=True: None)
    monkeypatch.setattr("tests.kernels.gluon_on_cpu.LONGEST_WAIT", 0.2)
    with pytest.raises(DeadlockError):
        computed((640, 640, 1, 1, -128, 0), ("forward",))
