"""Decoding in several splits: which bits and sums depend on their number, and how many there are."""

import math

import pytest
import torch

from flashverify_kernels import Configs, LaunchConfig, attention
from flashverify_kernels.config import config_error
from flashverify_kernels.decode_config import PROCESSORS, decode_config, decode_splits, resident_programs
from flashverify_kernels.merge import merge
from tests.kernels.decode_reference import SMALL, close, ints, run, same


# With one query head per kv head a row has the same place in the tile of both kernels, and nothing else differs.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_one_split_of_a_head_of_its_own_is_attention_bit_for_bit(make_case, dtype, causal):
    case = make_case(batch=2, heads=3, sq=5, sk=90, d=24, dv=40, dtype=dtype)
    options = {"causal": causal, "key_lengths": ints(90, 41)}
    wanted = attention(case.q, case.k, case.v, config=Configs(forward=SMALL), return_lse=True, **options)
    same(run(case.q, case.k, case.v, n_splits=1, config=SMALL, **options), wanted)


# In a packed tile a row has another place; BLAS, which multiplies for the interpreter, sums the edges of a tile in another order.
@pytest.mark.parametrize("group", [3, 16])
def test_one_split_of_a_group_is_attention_up_to_the_order_of_sums(make_case, group):
    case = make_case(batch=2, heads=group, kv_heads=1, sq=3, sk=60)
    options = {"causal": "bottom-right", "key_lengths": ints(60, 25)}
    wanted = attention(case.q, case.k, case.v, config=Configs(forward=SMALL), return_lse=True, **options)
    close(run(case.q, case.k, case.v, n_splits=1, config=SMALL, **options), wanted)


@pytest.mark.parametrize("n_splits", [2, 3, 7, 20])
def test_the_number_of_splits_changes_rounding_alone(make_case, n_splits):
    case = make_case(batch=3, heads=4, kv_heads=2, sq=2, sk=96)
    options = {"causal": "bottom-right", "key_lengths": ints(96, 17, 0), "config": SMALL}
    one = run(case.q, case.k, case.v, n_splits=1, **options)
    close(run(case.q, case.k, case.v, n_splits=n_splits, **options), one)


def test_splits_beyond_the_tiles_are_empty_and_change_no_bit_of_one_tile(make_case):
    case = make_case(heads=4, kv_heads=2, sq=1, sk=16)
    one = run(case.q, case.k, case.v, n_splits=1, config=SMALL)
    for n_splits in (2, 20):
        same(run(case.q, case.k, case.v, n_splits=n_splits, config=SMALL), one)


def test_a_chosen_number_of_splits_is_the_one_of_the_plain_function(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=1, sk=700)
    config = LaunchConfig(block_m=16, block_n=64)
    resident = resident_programs(config, case.q.device, d=16, dv=16, dtype=torch.float32)
    chosen = decode_splits(keys=700, programs=4, resident=resident)
    assert chosen > 1
    same(run(case.q, case.k, case.v, config=config), run(case.q, case.k, case.v, n_splits=chosen, config=config))


def test_two_splits_are_the_merge_of_two_attentions(make_case):
    case = make_case(heads=3, sq=4, sk=64)
    config = Configs(forward=SMALL)
    parts = [
        attention(case.q, case.k[:, :, n], case.v[:, :, n], config=config, return_lse=True)
        for n in (slice(32), slice(32, 64))
    ]
    merged = merge(torch.stack([o for o, _ in parts]), torch.stack([lse for _, lse in parts]))
    close(run(case.q, case.k, case.v, n_splits=2, config=SMALL), merged, 1e-6)


def test_a_sequence_depends_on_no_other_for_a_given_number_of_splits(make_case):
    case = make_case(batch=3, heads=4, kv_heads=2, sq=2, sk=80)
    lengths = ints(80, 33, 64)
    whole = run(case.q, case.k, case.v, key_lengths=lengths, n_splits=3)
    for b in range(3):
        alone = slice(b, b + 1)
        got = run(case.q[alone], case.k[alone], case.v[alone], key_lengths=lengths[alone], n_splits=3)
        same(got, [x[alone] for x in whole])
        cut = int(lengths[b])
        same(run(case.q[alone], case.k[alone, :, :cut], case.v[alone, :, :cut], n_splits=3), got)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [8, 64, 72, 128, 192, 256])
def test_every_default_configuration_can_be_launched(dtype, width):
    for rows in (1, 17, 33, 1000):
        for limit in (99 * 1024, 163 * 1024, 227 * 1024):
            config = decode_config(d=width, dv=width, dtype=dtype, rows=rows, limit=limit)
            assert config_error("forward", config, d=width, dv=width, dtype=dtype, limit=limit) is None


def test_splits_fill_the_device_and_no_more_than_the_keys_give():
    resident = 2 * PROCESSORS
    for programs in range(0, 3000, 7):
        for keys in (1, 128, 1000, 4096, 32768, 2**20):
            splits = decode_splits(keys=keys, programs=programs, resident=resident)
            assert 1 <= splits <= max(min(keys // 128, 128), 1)
            if keys == 2**20 and programs > 2:
                waves = programs * splits / resident
                assert waves / math.ceil(waves) > 0.8
