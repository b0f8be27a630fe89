import pytest
import torch

from flashverify_kernels import launch_config


def _tile(kind, mask, d=128, blocks=None, dtype=torch.float16, **given):
    config = launch_config(kind, d=d, dv=d, dtype=dtype, mask=mask, sq=4096, blocks=blocks, **given)
    return (config.block_m, config.block_n, config.num_warps, config.num_stages), config.descriptors


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_wide_heads_have_tiles_that_descriptors_fetch(dtype):
    for mask in ("none", "causal"):
        assert _tile("forward", mask, 256, dtype=dtype) == ((128, 64, 8, 2), True)
        assert _tile("dq", mask, 256, dtype=dtype) == ((64, 32, 4, 3), True)
        assert _tile("dkdv", mask, 256, dtype=dtype) == ((64, 64, 8, 2), True)


def test_large_blocks_are_whole_tiles_and_small_ones_are_divided():
    assert _tile("forward", "blocks", blocks=(128, 256)) == ((128, 128, 8, 2), True)
    assert _tile("forward", "blocks", blocks=(128, 64)) == ((64, 64, 4, 2), True)
    assert _tile("forward", "blocks", blocks=(32, 64)) == ((32, 64, 4, 2), True)


@pytest.mark.parametrize("kind", ["dq", "dkdv"])
def test_backwards_of_windows_and_blocks_have_short_loops(kind):
    assert _tile(kind, "causal+left") == ((64, 64, 4, 2), True)
    assert _tile(kind, "blocks", blocks=(128, 128)) == ((64, 64, 4, 2), True)


@pytest.mark.parametrize("mask", ["blocks", "causal+blocks", "left+blocks", "causal+left+blocks"])
@pytest.mark.parametrize("d", [64, 128])
def test_large_blocks_have_the_kernels_for_hopper_gpus(mask, d):
    def asked(kind, blocks, mask=mask, **given):
        given = {"sq": 4096, "dtype": torch.float16, "capability": (9, 0)} | given
        config = launch_config(kind, d=d, dv=d, mask=mask, blocks=blocks, **given)
        return config.hopper and config.block_n == (64 if kind == "dq" else 128)

    assert asked("forward", (d, 128))
    assert asked("dkdv", (64, 256))
    assert asked("dq", (128, 64)) is (d == 128)
    assert not asked("dq", (64, 64))
    assert not asked("forward", (d // 2, 128))
    assert not asked("dkdv", (32, 128))
    for kind in ("forward", "dkdv"):
        assert not asked(kind, (128, 64))
    for kind in ("forward", "dq", "dkdv"):
        for given in ({"hopper": False}, {"capability": (8, 0)}, {"whole": False}, {"pairs": "terms"}, {"sq": 16}):
            assert not asked(kind, (128, 128), **given)
    assert not asked("forward", (128, 128), mask="prefix+blocks")
    assert not asked("forward", (128, 128), dtype=torch.float32)


@pytest.mark.parametrize("given", [{"whole": False}, {"pairs": "terms"}, {"limit": 163 * 1024}])
def test_other_problems_keep_tiles_that_pointers_load(given):
    assert not _tile("forward", "none", 256, **given)[1]
