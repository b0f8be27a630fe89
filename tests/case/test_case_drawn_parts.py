"""What single parts of a case are drawn as: trees, packed sequences, head dims, heads, patterns, shifts."""

import dataclasses
from collections import Counter
from random import Random

import numpy as np
import pytest

from flashverify.campaign.worker import search
from flashverify.case import Case, Mask, Supports, Values, parse_case, standard_matrix
from flashverify.case.masks.packed import PACKED, Packed
from flashverify.case.masks.part import Drawn
from flashverify.case.masks.patterns import blocks_tensor
from flashverify.case.masks.prefix_lengths import PREFIX_LENGTHS
from flashverify.case.masks.tree_shapes import draw_tree, shape_of
from flashverify.case.space.coverage import Coverage
from flashverify.case.space.dims import dim_choices
from flashverify.case.space.heads import all_head_choices
from flashverify.case.space.profiles import CPU
from flashverify.case.space.random_source import RandomSource
from flashverify.case.space.seen import sees_something
from flashverify.case.space.strategies import cases
from flashverify.case.space.tile_sizes import tile_of
from flashverify.case.values.fill import Fill
from flashverify.case.values.regimes import regime_values
from flashverify.errors import UsageError


def drawn_trees(nodes, count=300):
    source = RandomSource(Random(0))
    return [draw_tree(source, nodes) for _ in range(count)]


@pytest.mark.parametrize("nodes", [0, 1, 4, 13, 70])
def test_every_drawn_tree_is_one(nodes):
    for tree in drawn_trees(nodes):
        assert len(Mask(tree=tree).tree) == nodes


def test_half_of_the_trees_branch_from_one_root_in_many_shapes():
    trees = drawn_trees(13)
    shapes = Counter(map(shape_of, trees))

    assert shapes["single root"] > 0.35 * len(trees)
    assert set(shapes) == {"chain", "star", "binary", "roots", "several roots", "single root"}
    assert len({tree for tree in trees if shape_of(tree) == "single root"}) > 60


def test_prefixes_of_packed_sequences_mostly_end_inside_their_sequence():
    sequences = Packed((0, 5, 9, 20), (0, 40, 100, 130))
    drawn = Drawn(
        supports=Supports(),
        parts=frozenset({"packed", "causal", "prefix_lengths"}),
        sequences=3,
        seq_q=20,
        seq_k=130,
        block=(16, 16),
        values={"packed": sequences},
    )
    source = RandomSource(Random(1))
    prefixes = [PREFIX_LENGTHS.draw(source, drawn) for _ in range(200)]
    inside = [n <= keys for each in prefixes for n, (_, keys) in zip(each, sequences.lengths(), strict=True)]

    assert 0.7 < sum(inside) / len(inside) < 1


def packed(count, rows, keys):
    drawn = Drawn(
        supports=Supports(),
        parts=frozenset({"packed"}),
        sequences=count,
        seq_q=rows,
        seq_k=keys,
        block=(16, 16),
        values={},
    )
    source = RandomSource(Random(1))
    return [PACKED.draw(source, drawn) for _ in range(200)]


def test_of_many_sequences_one_is_often_much_longer_than_the_others():
    many, few = (
        [max(n for n, _ in p.lengths()) * count / max(p.cu_q[-1], 1) for p in packed(count, 70, 75)]
        for count in (24, 6)
    )

    assert sum(ratio > 8 for ratio in many) > 0.4 * len(many)
    assert sum(ratio < 4 for ratio in few) > 0.4 * len(few)


@pytest.mark.parametrize("total", [0, 1, 5, 24])
def test_more_sequences_than_positions_fit(total):
    assert all(p.cu_q[-1] <= total and len(p.lengths()) == 24 for p in packed(24, total, total))


def test_head_dims_beyond_the_usual_ones_are_drawn_for_who_declares_them():
    usual, fine, wide = (dim_choices(Supports(**axes), CPU) for axes in ({}, {"dim_multiple": 1}, {"dim_max": 1024}))

    assert set(usual) == set(CPU.dims)
    assert {d % 2 for pair in set(fine) - set(usual) for d in pair} == {0, 1}
    assert max(max(pair) for pair in fine) == 256
    assert {320, 512, 576} <= {d for pair in wide for d in pair}
    assert dim_choices(Supports(dim_multiple=1, dim_max=7, equal_dims=True), CPU) == [(4, 4), (1, 1), (3, 3)]


def test_large_groups_are_one_draw_in_twenty_and_only_of_who_takes_them():
    choices = all_head_choices(Supports(), CPU)
    groups = Counter(heads_q // heads_kv for _, heads_q, heads_kv in choices)

    assert {17, 24, 64} <= groups.keys()
    assert 0.03 < sum(count for size, count in groups.items() if size > 4) / len(choices) <= 0.05
    assert {heads_q // heads_kv for _, heads_q, heads_kv in all_head_choices(Supports(gqa=False), CPU)} == {1}
    assert {8} == {q // kv for _, q, kv in all_head_choices(Supports(group_sizes=(8,)), CPU)}


def test_a_sliding_window_of_blocks_follows_the_diagonal():
    (table,) = blocks_tensor(parse_case("fv1 seq_q=96 seq_k=96 blocks=16,32,0,0,0,0,1"))[0]
    assert [[c for c in range(3) if table[r, c]] for r in range(6)] == [[0], [0], [1], [1], [2], [2]]
    (table,) = blocks_tensor(parse_case("fv1 seq_q=64 seq_k=64 blocks=16,16,0,0,0,0,2"))[0]
    assert [[c for c in range(4) if table[r, c]] for r in range(4)] == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3]]
    with pytest.raises(UsageError, match="sliding"):
        parse_case("fv1 seq_q=64 seq_k=64 blocks=16,16,0,0,0,0,-1")


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("seed", [2, 5, 9])
@pytest.mark.parametrize("dim", [1, 16, 33])
def test_shifted_logits_lie_far_from_0_and_close_together(dtype, seed, dim):
    case = Case(seq_q=20, seq_k=30, dim_qk=dim, dtype=dtype, values=Values(regime="shifted", seed=seed))
    found = regime_values(Fill(case))
    s = case.softmax_scale * (found["q"] @ found["k"].swapaxes(2, 3))

    assert np.sign(s.mean()) == (-1) ** seed
    assert abs(s.mean()) > 16
    assert s.std() < 2


def test_the_tile_is_read_off_the_launch_values():
    assert tile_of((("block_m", 16), ("block_n", 128), ("num_warps", 8))) == (16, 128)
    assert tile_of((("n_splits", 20),)) == (64, 64)
    assert tile_of((("BLOCK_N", 32), ("block_m", 512)), 128, 64) == (128, 32)


def test_a_mask_that_hides_every_pair_is_told_apart():
    def sees(text):
        case = parse_case(f"fv1 {text}")
        return sees_something(case.mask, batch=case.batch, heads=case.heads_q, seq_q=case.seq_q, seq_k=case.seq_k)

    assert sees("seq_q=3 seq_k=4")
    assert sees("batch=2 seq_q=3 seq_k=4 klen=0,1")
    assert not sees("batch=2 seq_q=3 seq_k=4 klen=0,0")
    assert not sees("seq_q=3 seq_k=4 bitmap=0,1")
    assert not sees("batch=0 seq_q=3 seq_k=4")


def test_of_a_round_the_best_covered_cases_are_left_out():
    coverage = Coverage()
    plain = [parse_case(f"fv1 seq_q={n}") for n in range(2, 6)]
    rare = parse_case("fv1 seq_q=70 seq_k=70 dtype=bf16 causal=top-left softcap=2 layout=bshd")
    for case in plain * 3:
        coverage.add(case)

    assert coverage.gain(rare) > 2 * coverage.gain(plain[0])
    kept = coverage.without_least([plain[0], plain[1], rare, plain[2]], 2)
    assert kept == [plain[0], rare]


def test_decode_shaped_cases_reach_32768_keys():
    supports = Supports(masks=("causal", "key_lengths"), backward=False, page_sizes=(16,), max_seq_q=8)
    long = [case for case in standard_matrix(supports, device="cpu") if case.seq_k > 8192]

    assert [case.seq_k for case in long] == [8193, 20001, 32768]
    assert all(case.mask.key_lengths is None for case in long)
    dense = dataclasses.replace(supports, page_sizes=(), max_seq_q=None)
    assert max(case.seq_k for case in standard_matrix(dense, device="cpu")) < 1024


@pytest.mark.slow
def test_odd_and_wide_head_dims_are_drawn_as_cases():
    supports = Supports(dim_multiple=1, dim_max=600)
    dims = {(c.dim_qk, c.dim_v) for c in search.draw(cases(supports), 150, 0)}

    assert any(d % 8 for d, _ in dims)
    assert any(d > 256 for d, _ in dims)
