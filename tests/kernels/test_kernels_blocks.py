import math

import pytest
import torch

from flashverify_kernels import BlockMask, attention


def drawn(*shape, share=0.4, seed=0):
    rng = torch.Generator("cpu").manual_seed(seed)
    return torch.rand(shape, generator=rng, device="cpu").lt(share).to(torch.zeros(()).device)


def pairs(live, rows, keys, sq, sk):
    """`[B or 1, Hq or 1, Sq, Sk]` bool."""
    return live.repeat_interleave(rows, 2).repeat_interleave(keys, 3)[:, :, :sq, :sk]


# Blocks of one tile, of several, of sizes that are no power of two, unequal, and larger than the problem.
@pytest.mark.parametrize(("rows", "keys"), [(16, 16), (16, 64), (48, 32), (128, 16)])
@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (2, 4)])
def test_patterns_agree_with_the_definition(make_case, blocks, rows, keys, batch, heads):
    live = drawn(batch, heads, -(-70 // rows), -(-90 // keys))
    case = make_case(batch=2, heads=4, kv_heads=2, sq=70, sk=90)
    seen = pairs(live, rows, keys, 70, 90).expand(2, 4, -1, -1)
    case.check(seen, blocks=BlockMask.from_bool(live, rows, keys), config=blocks(16, 16))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize(("causal", "window"), [(None, (None, None)), ("bottom-right", (None, None)), (None, (20, 9))])
def test_a_pattern_of_half_precision_meets_every_other_part(make_case, see, blocks, causal, window, share):
    queries, lengths = [30, 64], [90, 33]
    live = drawn(1, 2, 2, 3, share=share)
    case = make_case(batch=2, heads=2, kv_heads=1, sq=64, sk=90, d=32, dtype=torch.float16)
    case.check(
        see(2, 64, 90, causal, lengths, window=window, queries=queries) & pairs(live, 32, 32, 64, 90),
        causal=causal,
        window=window,
        query_lengths=torch.tensor(queries, dtype=torch.int32),
        key_lengths=torch.tensor(lengths, dtype=torch.int32),
        blocks=BlockMask.from_bool(live, 32, 32),
        config=blocks(16, 32),
    )


def test_a_pattern_with_a_tree(make_case, see, blocks, tree):
    parents, live = [-1, *(n // 2 for n in range(39))], drawn(1, 1, 3, 4, share=0.6)
    case = make_case(sq=40, sk=53)
    seen = see(1, 40, 53, parents=parents) & pairs(live, 16, 16, 40, 53)
    case.check(seen, tree=tree(parents), blocks=BlockMask.from_bool(live, 16, 16), config=blocks(16, 16))


@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_all_blocks_live_is_dense_bit_for_bit(make_case, blocks, causal):
    case = make_case(heads=2, kv_heads=1, sq=70, sk=90)
    pattern = BlockMask.from_bool(torch.ones(1, 1, 3, 6, dtype=torch.bool), 32, 16)
    dense = case.run(causal=causal, config=blocks(32, 16))
    sparse = case.run(causal=causal, blocks=pattern, config=blocks(32, 16))
    for name, x in dense.items():
        assert torch.equal(sparse[name], x), name


def test_dead_blocks_are_not_read(make_case, blocks):
    live = torch.tensor([[True, False, True], [False, False, True]])[None, None]
    case = make_case(sq=64, sk=96)
    options = {"blocks": BlockMask.from_bool(live, 32, 32), "config": blocks(16, 16)}
    clean = case.run(**options)
    for x in (case.k, case.v):
        x[:, :, 32:64] = math.nan  # dead for all
        x[:, :, :32] = math.nan  # live for the first block of queries
    poisoned = case.run(**options)
    for name in ("o", "lse", "dq"):
        assert torch.equal(poisoned[name][:, :, 32:], clean[name][:, :, 32:]), name


@pytest.mark.parametrize(("rows", "keys"), [(16, 16), (48, 144)])
def test_default_tiles_divide_the_blocks(make_case, rows, keys):
    live = drawn(1, 1, -(-100 // rows), -(-150 // keys))
    case = make_case(sq=100, sk=150)
    case.check(pairs(live, rows, keys, 100, 150), blocks=BlockMask.from_bool(live, rows, keys))


def test_tables_list_the_live_blocks_and_count_them():
    live = torch.tensor([[False, True, True, False, True], [False] * 5])[None, None]
    tables = BlockMask.from_bool(live, 16, 16)
    assert tables.shape == (1, 1, 2, 5)
    first, second = tables.along_keys[0, 0].tolist()
    assert first[:3] == [1, 2, 4]
    assert first[5:11] == [0, 0, 1, 2, 2, 3]
    assert second[5:11] == [0] * 6
    assert tables.along_queries[0, 0, 1, :5].tolist() == [0, 1, 0, 1, 1]


def test_the_last_entries_of_tables_say_which_has_the_most_live_blocks():
    live = torch.tensor([[False, True, True, False], [False] * 4, [True] * 4])[None, None]
    tables = BlockMask.from_bool(live, 16, 16)
    assert tables.along_keys[0, 0, :, -1].tolist() == [2, 0, 1]
    assert tables.along_queries[0, 0, :, -1].tolist() == [1, 2, 0, 3]


def test_patterns_are_refused_by_name_and_value(blocks):
    q, live = torch.zeros(1, 2, 40, 8), torch.ones(1, 1, 3, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="rows: expected a positive multiple of 16, got 24"):
        BlockMask.from_bool(live, 24, 16)
    with pytest.raises(TypeError, match=r"live: expected a bool tensor, got torch\.int32"):
        BlockMask.from_bool(live.int(), 16, 16)
    with pytest.raises(ValueError, match="live: expected 4 axes"):
        BlockMask.from_bool(live[0], 16, 16)
    with pytest.raises(ValueError, match=r"blocks: expected shape \(1 or 1, 2 or 1, 2, 3\).*, got \(1, 1, 3, 3\)"):
        attention(q, q, q, blocks=BlockMask.from_bool(live, 32, 16))
    with pytest.raises(ValueError, match=r"config.forward: block_n: expected a divisor of the 16 positions"):
        attention(q, q, q, blocks=BlockMask.from_bool(live, 16, 16), config=blocks(16, 32))
