"""Decoding: masks, trees, pages and layouts against its definition in float64."""

import math

import pytest
import torch

from flashverify_kernels import Bitmap
from tests.kernels.decode_reference import INF, SMALL, agree, close, exact, ints, paged, run, same, visible


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("n_splits", [None, 1, 3])
@pytest.mark.parametrize(("sq", "sk", "d", "dv"), [(1, 1, 8, 8), (1, 300, 64, 32), (3, 129, 40, 72), (2, 70, 256, 128)])
def test_it_agrees_with_the_definition(make_case, dtype, n_splits, sq, sk, d, dv):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=sq, sk=sk, d=d, dv=dv, dtype=dtype)
    got = run(case.q, case.k, case.v, n_splits=n_splits)
    assert got[0].dtype == dtype
    agree(got, exact(case.q, case.k, case.v, visible(2, sq, sk)), dtype)


@pytest.mark.parametrize("group", [1, 3, 8, 17, 24])
@pytest.mark.parametrize("sq", [1, 3])
def test_groups_of_query_heads(make_case, group, sq):
    case = make_case(batch=2, heads=2 * group, kv_heads=2, sq=sq, sk=50)
    lengths = ints(50, 21)
    got = run(case.q, case.k, case.v, key_lengths=lengths, causal="bottom-right", n_splits=2, config=SMALL)
    see = visible(2, sq, 50, causal="bottom-right", lengths=lengths)
    agree(got, exact(case.q, case.k, case.v, see), torch.float32)


@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
@pytest.mark.parametrize("window", [None, (0, 0), (20, None), (None, 3), (5, 40), (2**40, 2**40)])
def test_masks(make_case, causal, window):
    lengths = ints(70, 33, 16, 5, 0)
    case = make_case(batch=5, heads=4, kv_heads=2, sq=9, sk=70)
    got = run(case.q, case.k, case.v, causal=causal, window=window, key_lengths=lengths, n_splits=3, config=SMALL)
    see = visible(5, 9, 70, causal=causal, window=window or (None, None), lengths=lengths)
    agree(got, exact(case.q, case.k, case.v, see), torch.float32)
    empty = ~see.any(-1).expand(got[1].shape)
    assert bool((got[0][empty] == 0).all())


@pytest.mark.parametrize("sq", [16, 17, 50])
def test_more_rows_than_one_tile(make_case, sq):
    case = make_case(heads=6, kv_heads=2, sq=sq, sk=80)
    got = run(case.q, case.k, case.v, causal="bottom-right", n_splits=3, config=SMALL)
    agree(got, exact(case.q, case.k, case.v, visible(1, sq, 80, causal="bottom-right")), torch.float32)


@pytest.mark.parametrize("n_splits", [1, 4])
def test_trees_end_at_the_key_length(make_case, tree, n_splits):
    parents, sq, sk = [-1, 0, 0, 1, 1, 2, -1], 7, 60
    mask = tree(parents)
    nodes = torch.zeros(sq, sq, dtype=torch.bool)
    for i in range(sq):
        node = i
        while node >= 0:
            nodes[i, node] = True
            node = parents[node]
    lengths = ints(60, 41, 16, 7, 3, 0)
    case = make_case(batch=6, heads=4, kv_heads=2, sq=sq, sk=sk)
    got = run(case.q, case.k, case.v, tree=mask, key_lengths=lengths, n_splits=n_splits, config=SMALL)
    see = visible(6, sq, sk, lengths=lengths, nodes=nodes.expand(6, -1, -1))
    agree(got, exact(case.q, case.k, case.v, see), torch.float32)
    bits = Bitmap.from_bool(nodes[None, None])
    same(run(case.q, case.k, case.v, tree=bits, key_lengths=lengths, n_splits=n_splits, config=SMALL), got)


def test_every_sequence_and_head_may_have_a_tree_of_its_own(make_case):
    sq, sk, lengths = 40, 90, ints(90, 63, 40)
    rng = torch.Generator("cpu").manual_seed(1)
    nodes = (torch.rand(3, 4, sq, sq, generator=rng, device="cpu") < 0.3).to(lengths.device)
    case = make_case(batch=3, heads=4, kv_heads=2, sq=sq, sk=sk)
    options = {"key_lengths": lengths, "n_splits": 3, "config": SMALL}
    got = run(case.q, case.k, case.v, tree=Bitmap.from_bool(nodes), **options)
    see = torch.cat([visible(3, sq, sk, lengths=lengths, nodes=nodes[:, h]) for h in range(4)], 1)
    agree(got, exact(case.q, case.k, case.v, see), torch.float32)


def test_a_chain_is_causal_bit_for_bit(make_case, tree):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=5, sk=60)
    options = {"key_lengths": ints(60, 33), "n_splits": 2, "config": SMALL}
    same(
        run(case.q, case.k, case.v, tree=tree(range(-1, 4)), **options),
        run(case.q, case.k, case.v, causal="bottom-right", **options),
    )


# 16 and 48 are multiples of the tile of keys, which then takes one entry of the table; the others scatter.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("page_size", [1, 5, 8, 16, 24, 48, 128])
def test_pages_equal_contiguous_keys_bit_for_bit(make_case, dtype, page_size):
    case = make_case(batch=3, heads=4, kv_heads=2, sq=2, sk=70, d=24, dv=40, dtype=dtype)
    lengths = ints(70, 37, 0)
    options = {"key_lengths": lengths, "causal": "bottom-right", "n_splits": 2, "config": SMALL}
    wanted = run(case.q, case.k, case.v, **options)
    k, v, table = paged(case.k, case.v, page_size, lengths, garbage=-1 if dtype == torch.float16 else 2**31 - 1)
    same(run(case.q, k, v, block_table=table, **options), wanted)


def test_pages_keep_their_order_of_axes_in_every_layout(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=2, sk=40)
    k, v, table = paged(case.k, case.v, 8)
    o, lse = run(case.q.transpose(1, 2).contiguous(), k, v, block_table=table, layout="bshd", n_splits=2)
    same((o.transpose(1, 2), lse), run(case.q, k, v, block_table=table, n_splits=2))


@pytest.mark.parametrize("page_size", [4, 16, 32])
def test_pages_before_every_window_are_not_read(make_case, page_size):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=2, sk=96)
    lengths = ints(96, 70)
    options = {"key_lengths": lengths, "causal": "bottom-right", "window": (10, 0), "n_splits": 3, "config": SMALL}
    wanted = run(case.q, case.k, case.v, **options)
    k, v, table = paged(case.k, case.v, page_size, lengths, garbage=-1)
    for b in range(2):
        table[b, : (int(lengths[b]) - 2 - 10) // page_size] = -1
    same(run(case.q, k, v, block_table=table, **options), wanted)


def test_fewer_query_rows_need_fewer_pages_under_a_window(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=8, sk=96)
    rows = ints(1, 0)
    options = {"query_lengths": rows, "causal": "bottom-right", "window": (3, 0), "config": SMALL}
    wanted = run(case.q, case.k, case.v, **options)
    k, v, table = paged(case.k, case.v, 4, ints(96, 96), garbage=-1)
    for b in range(2):
        table[b, : (96 - int(rows[b]) - 3) // 4] = -1
    same(run(case.q, k, v, block_table=table, **options), wanted)


@pytest.mark.parametrize("poison", [math.nan, INF])
def test_what_lies_beyond_the_key_length_never_matters(make_case, poison):
    case = make_case(batch=3, heads=4, kv_heads=2, sq=2, sk=50)
    lengths = ints(33, 0, 50)
    options = {"key_lengths": lengths, "n_splits": 4, "config": SMALL}
    clean = run(case.q, case.k, case.v, **options)
    for b in range(3):
        case.k[b, :, int(lengths[b]) :] = poison
        case.v[b, :, int(lengths[b]) :] = poison
    same(run(case.q, case.k, case.v, **options), clean)


def test_strides_alignment_and_layout_do_not_matter(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=2, sk=50, dv=24, dtype=torch.float16)
    wanted = run(case.q, case.k, case.v, n_splits=2)
    views = []
    for x in (case.q, case.k, case.v):
        big = torch.full((*x.shape[:2], x.shape[2] + 2, x.shape[3] + 5), math.nan, dtype=x.dtype)
        views.append(big[:, :, : x.shape[2], 3 : 3 + x.shape[3]].copy_(x))
    same(run(*views, n_splits=2), wanted)
    o, lse = run(*(x.transpose(1, 2).contiguous() for x in (case.q, case.k, case.v)), layout="bshd", n_splits=2)
    assert o.is_contiguous()
    same((o.transpose(1, 2), lse), wanted)


@pytest.mark.parametrize(("batch", "sq", "sk"), [(0, 1, 9), (2, 0, 9), (2, 1, 0)])
def test_empty_axes(make_case, batch, sq, sk):
    case = make_case(batch=batch, heads=4, kv_heads=2, sq=sq, sk=sk)
    o, lse = run(case.q, case.k, case.v)
    assert o.shape == (batch, 4, sq, 16)
    assert bool((o == 0).all())
    assert bool((lse == -INF).all())


@pytest.mark.parametrize("scale", [0.0, -0.7, 100.0])
def test_any_scale(make_case, scale):
    case = make_case(heads=4, kv_heads=2, sq=1, sk=50)
    got = run(case.q, case.k, case.v, scale=scale, n_splits=2, config=SMALL)
    wanted = exact(case.q, case.k, case.v, visible(1, 1, 50), scale)
    close([x.double() for x in got], wanted, 4e-5 if scale == 100.0 else 4e-6)


@pytest.mark.parametrize("page_size", [None, 5])
@pytest.mark.parametrize("window", [None, (3, None), (0, 2)])
def test_a_tree_under_a_window_sees_what_both_show(make_case, tree, window, page_size):
    parents, lengths = [-1, 0, 0, 1, 1, 2, -1], ints(60, 41, 7)
    case = make_case(batch=3, heads=4, kv_heads=2, sq=7, sk=60)
    nodes = torch.eye(7, dtype=torch.bool)
    for node, parent in enumerate(parents):
        nodes[node] |= nodes[parent] & (parent >= 0)
    options = {"causal": "bottom-right", "window": window, "key_lengths": lengths, "config": SMALL, "n_splits": 2}
    k, v, table = (case.k, case.v, None) if page_size is None else paged(case.k, case.v, page_size, lengths)

    got = run(case.q, k, v, tree=tree(parents), block_table=table, **options)

    see = visible(
        3, 7, 60, causal="bottom-right", window=window or (None, None), lengths=lengths, nodes=nodes.expand(3, -1, -1)
    )
    agree(got, exact(case.q, case.k, case.v, see), torch.float32)
