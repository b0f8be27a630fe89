"""The kernels for Hopper GPUs over packed sequences, on a CPU (`gluon_on_cpu`), against float64 attention of each sequence."""

import math

import numpy as np
import pytest

from flashverify_kernels.hopper import dkdv_form
from tests.kernels.gluon_on_cpu import run
from tests.kernels.gluon_values import Pointer, Tiles
from tests.kernels.test_kernels_hopper_walks import TOLERANCE, D, exact

pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")

from flashverify_kernels.device.hopper import dkdv, dq, forward, ragged

LENGTHS = [  # queries and keys of each sequence
    ([130, 1, 0, 300, 64], [130, 1, 0, 300, 64]),
    ([70, 129, 5, 0, 256], [200, 30, 0, 77, 256]),
    ([200], [333]),
]
EDGES = [(None, None, 0), (None, 0, 0), (None, 0, 1), (-40, 0, 0), (-70, 20, 1)]
"""The edges of sequences with as many queries as keys, and whether they end at the last key."""
BEHIND = 9
"""Rows of no sequence, which hold NaN."""


def computed(lengths, edges, heads=4, kv_heads=2, programs=3):
    """What the kernels give and what is exact, by output; and the rows that must not be written."""
    (of_q, of_k), (left, right, align_end) = lengths, edges
    starts_q, starts_k = (np.cumsum([0, *x]) for x in (of_q, of_k))
    rows, keys = starts_q[-1] + BEHIND, starts_k[-1] + BEHIND
    rng = np.random.default_rng(0)
    shapes = (heads, rows), (kv_heads, keys), (kv_heads, keys), (heads, rows)
    q, k, v, do = (rng.standard_normal((1, h, s, D)).astype(np.float16) for h, s in shapes)
    row = q[..., 0]
    outputs = {"o": q, "lse2": row, "delta": row, "dq": q, "dk": k, "dv": v}
    right_ones = {name: np.zeros(like.shape) for name, like in outputs.items()}
    for n in range(len(of_q)):
        own_q, own_k = slice(*starts_q[n : n + 2]), slice(*starts_k[n : n + 2])
        i, j = np.arange(of_q[n])[:, None], np.arange(of_k[n])[None]
        shift = align_end * (of_k[n] - of_q[n])
        low = -math.inf if left is None else left + shift
        see = (j >= i + low) & (j <= i + (math.inf if right is None else right + shift))
        if of_q[n] and of_k[n]:
            found = exact(q[0, :, own_q], k[0, :, own_k], v[0, :, own_k], do[0, :, own_q], see)
            for name, x in zip(outputs, found, strict=True):
                right_ones[name][0, :, own_k if name in ("dk", "dv") else own_q] = x
        elif of_q[n]:
            right_ones["lse2"][0, :, own_q] = -math.inf
    for x in (q, k, v, do):
        x[:, :, -BEHIND:] = np.nan
    found = {name: np.full(x.shape, np.nan, np.float16) for name, x in outputs.items() if name in ("o", "dq")}
    lse2 = np.full(heads * rows, np.nan, np.float32)
    sequences = (*(Pointer(x.astype(np.int64)) for x in (starts_q, starts_k)), len(of_q), (len(of_q) - 1).bit_length())
    sequences += (int(rows), align_end)
    edges = (heads, heads // kv_heads, max(of_q), max(of_k), left, 0 if right is None else right)
    upper, factor = right is not None, D**-0.5 * math.log2(math.e)
    places = (Tiles(q, 64, True), Tiles(k, 128, True), Tiles(v, 128, True), Tiles(found["o"], 64, True))
    run(
        forward.hopper_forward_kernel,
        heads * (min(int(rows), len(of_q) * max(of_q)) // 128 + len(of_q)),
        *places,
        Pointer(lse2),
        *(factor, 1, *edges, *[None] * 5, *sequences, upper, False, 2),
    )
    found["lse2"] = lse2.reshape(1, heads, rows)
    statistics = [Pointer(right_ones[name].astype(np.float32).ravel()) for name in ("lse2", "delta")]
    numbers = (D**-0.5, factor, 1, *edges, *[None] * 5, *sequences, upper, False, 3, 2)
    run(dq.hopper_dq_kernel, programs, *(Tiles(x, 64, True) for x in (q, k, v, do, found["dq"])), *statistics, *numbers)
    for width in (64, 128):
        form, _ = dkdv_form(width)
        outputs = {f"{name} as of {width} channels": np.full_like(k, np.nan) for name in ("dk", "dv")}
        own = [Tiles(x, 64, True) for x in (q, k, v, do, *outputs.values())]
        count = kv_heads * (min(int(keys), len(of_k) * max(of_k)) // (64 * form["GROUPS"]) + len(of_k))
        numbers = (D**-0.5, factor, *edges, *[None] * 5, *sequences, upper, *form.values())
        run(dkdv.hopper_dkdv_kernel, count, *own, *statistics, *numbers)
        found |= outputs
    return {name: (x, right_ones[name[:2] if name[0] == "d" else name]) for name, x in found.items()}


def wrong(lengths, edges, **sizes):
    found = {}
    for name, (x, y) in computed(lengths, edges, **sizes).items():
        inside, behind = x[:, :, :-BEHIND], x[:, :, -BEHIND:]
        y = y[:, :, :-BEHIND]
        with np.errstate(invalid="ignore"):
            close = (inside == y) | (abs(inside - y) <= TOLERANCE * (1 + abs(y)))
        if not close.all() or not np.isnan(behind).all():
            found[name] = int((~close).sum())
    return found


@pytest.mark.one_in(4)
@pytest.mark.parametrize("edges", EDGES, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_each_sequence_has_exact_attention_and_rows_of_none_are_neither_read_nor_written(lengths, edges):
    assert wrong(lengths, edges) == {}


def test_a_program_a_tile_gives_the_same():
    assert wrong(LENGTHS[1], EDGES[2], programs=4 * (460 // 128 + 5)) == {}


def test_a_tile_that_does_not_end_with_its_sequence_is_seen(monkeypatch):
    monkeypatch.setattr(ragged.place, "fn", lambda cu_ptr, b, h, row, first, length: (0, h, first + row, 0))

    assert set(wrong(LENGTHS[0], EDGES[1])) >= {"o", "dq", "dk as of 64 channels", "dk as of 128 channels"}
