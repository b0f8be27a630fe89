import math
import random

import pytest
import torch

from flashverify_kernels import TreeMask
from tests.fast_tier import fast_one_in

CAUSAL = (None, "top-left", "bottom-right")


def forest(nodes, seed):
    rng = random.Random(seed)
    return [rng.randrange(-1, node) for node in range(nodes)]


# Tiles of 16x32 and 32x16 make both axes several tiles long at small sizes; sizes sit on and around the tile edges.
@pytest.mark.one_in(3)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("block", fast_one_in(3, [(16, 32), (32, 16), (16, 16)], ids=str, kept=2))
@pytest.mark.parametrize(("sq", "sk"), [(33, 33), (50, 17), (17, 65), (32, 64)])
def test_every_causal_mask_agrees_with_the_definition(make_case, see, blocks, causal, block, sq, sk):
    make_case(sq=sq, sk=sk).check(see(1, sq, sk, causal), causal=causal, config=blocks(*block))


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("block", [(16, 32), (32, 16)])
def test_key_lengths_agree_with_the_definition(make_case, see, blocks, causal, block):
    lengths = [0, 1, 31, 32, 40]
    case = make_case(batch=5, sq=35, sk=40)
    got = case.check(
        see(5, 35, 40, causal, lengths),
        causal=causal,
        key_lengths=torch.tensor(lengths, dtype=torch.int32),
        config=blocks(*block),
    )
    for b, length in enumerate(lengths):
        assert bool((got["dk"][b, :, length:] == 0).all())
        assert bool((got["dv"][b, :, length:] == 0).all())


@pytest.mark.parametrize("causal", CAUSAL)
def test_key_lengths_equal_truncated_keys_bit_for_bit(make_case, blocks, causal):
    case, n = make_case(sq=20, sk=40), 25
    config = blocks(16, 16)
    padded = case.run(causal=causal, key_lengths=torch.tensor([n], dtype=torch.int32), config=config)
    case.k, case.v = case.k[:, :, :n], case.v[:, :, :n]
    cut = case.run(causal=causal, config=config)
    for name, x in cut.items():
        assert torch.equal(padded[name][:, :, :n] if name in ("dk", "dv") else padded[name], x), name


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("causal", CAUSAL)
def test_what_lies_beyond_the_key_length_never_matters(make_case, blocks, causal, poison):
    case = make_case(batch=2, heads=2, kv_heads=1, sq=20, sk=40)
    options = {"causal": causal, "key_lengths": torch.tensor([0, 25], dtype=torch.int32), "config": blocks(16, 16)}
    clean = case.run(**options)
    for x in (case.k, case.v):
        x[0] = poison
        x[1, :, 25:] = poison
    poisoned = case.run(**options)
    for name, x in clean.items():
        assert torch.equal(poisoned[name], x), name


@pytest.mark.parametrize("block", [(16, 32), (32, 16)])
@pytest.mark.parametrize(("sq", "prefix"), [(1, 0), (40, 0), (40, 13), (17, 32), (33, 40)])
def test_trees_agree_with_the_definition(make_case, see, blocks, tree, block, sq, prefix):
    parents = forest(sq, seed=sq + prefix)
    case = make_case(heads=2, kv_heads=1, sq=sq, sk=prefix + sq)
    case.check(see(1, sq, prefix + sq, parents=parents), tree=tree(parents), config=blocks(*block))


def test_a_tree_with_key_lengths_agrees_with_the_definition(make_case, see, blocks, tree):
    parents, lengths = forest(40, seed=1), [0, 5, 20, 53]
    case = make_case(batch=4, sq=40, sk=53)
    case.check(
        see(4, 40, 53, lengths=lengths, parents=parents),
        tree=tree(parents),
        key_lengths=torch.tensor(lengths, dtype=torch.int32),
        config=blocks(16, 16),
    )


@pytest.mark.parametrize("prefix", [0, 13])
def test_a_chain_equals_causal_bit_for_bit(make_case, blocks, tree, prefix):
    case = make_case(heads=2, kv_heads=1, sq=40, sk=40 + prefix)
    config = blocks(16, 32)
    chain = case.run(tree=tree(range(-1, 39)), config=config)
    causal = case.run(causal="bottom-right", config=config)
    for name, x in causal.items():
        assert torch.equal(chain[name], x), name


def test_each_entry_of_a_batch_has_its_own_tree_bit_for_bit(make_case, blocks):
    parents, config = ([-1, 0, 0, 1, -1], [-1, -1, 1, 2, 0]), blocks(16, 32)
    case = make_case(batch=2, heads=2, kv_heads=1, sq=5, sk=9)
    both = case.run(tree=TreeMask.from_parents(parents[0] + parents[1], case.q.device, cu=[0, 5, 10]), config=config)
    for entry, tree in enumerate(parents):
        shared = case.run(tree=TreeMask.from_parents(tree, case.q.device), config=config)
        for name, x in shared.items():
            assert torch.equal(both[name][entry], x[entry]), name


def test_tiles_of_a_tree_that_no_query_sees_are_not_read(make_case, blocks, tree):
    roots = tree([-1] * 64)
    case = make_case(sq=64, sk=64)
    options = {"tree": roots, "config": blocks(16, 16)}
    clean = case.run(**options)
    case.k[:, :, :16] = math.nan  # seen by the first query tile only
    poisoned = case.run(**options)
    assert torch.equal(poisoned["o"][:, :, 16:], clean["o"][:, :, 16:])
    assert torch.equal(poisoned["dq"][:, :, 16:], clean["dq"][:, :, 16:])
    assert torch.equal(poisoned["dv"][:, :, 16:], clean["dv"][:, :, 16:])


def test_ancestor_bits_are_packed_by_pair():
    parents = forest(70, seed=3)
    bits = TreeMask.from_parents(parents).bits
    assert tuple(bits.shape) == (70, 3)
    for i in range(70):
        ancestors, node = set(), i
        while node >= 0:
            ancestors.add(node)
            node = parents[node]
        assert {j for j in range(96) if int(bits[i, j // 32]) >> (j % 32) & 1} == ancestors
