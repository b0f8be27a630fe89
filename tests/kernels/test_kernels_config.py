import itertools

import pytest
import torch

from flashverify_kernels import config_error, launch_config
from flashverify_kernels.arguments import compile_constants
from flashverify_kernels.mask_kinds import mask_flags

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


# sm_90, sm_80 and the 99 KiB of consumer cards.
@pytest.mark.parametrize("limit", [227 * 1024, 163 * 1024, 99 * 1024])
def test_every_default_can_be_launched(limit):
    dims = (8, 64, 72, 128, 256)
    for kind, d, dv, dtype, mask, sq in itertools.product(
        ("forward", "dq", "dkdv"), dims, dims, DTYPES, ("none", "causal", "tree", "window+blocks"), (1, 4096)
    ):
        size = (48, 128) if "blocks" in mask else None
        config = launch_config(kind, d=d, dv=dv, dtype=dtype, mask=mask, sq=sq, blocks=size, limit=limit)
        assert config_error(kind, config, d=d, dv=dv, dtype=dtype, blocks=size, limit=limit) is None


def test_kinds_of_mask_are_refused_by_name():
    with pytest.raises(ValueError, match=r"mask: expected kinds out of none, causal, .*, got 'causal\+sliding'"):
        launch_config("forward", d=64, dv=64, dtype=torch.float16, mask="causal+sliding", sq=64)


# Tiles larger than the problem, unequal tiles both ways, tiles that do not divide the lengths.
@pytest.mark.one_in(2)
@pytest.mark.parametrize("block", [(16, 16), (16, 64), (64, 16), (32, 128), (128, 32)])
@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
def test_all_tile_sizes_agree_with_the_definition(make_case, see, blocks, block, causal):
    case = make_case(heads=2, kv_heads=1, sq=70, sk=50)
    case.check(see(1, 70, 50, causal), causal=causal, config=blocks(*block))


@pytest.mark.parametrize(
    ("aligned", "mask", "width"), [(True, "causal", 16), (False, "causal", 64), (True, "tree", 64)]
)
def test_the_forward_has_no_tile_of_v_that_the_assembler_loses(aligned, mask, width):
    """An H200 read outside a tile of 16 channels: O of a tree was 0 in the second tile of queries."""
    config = launch_config("forward", d=64, dv=8, dtype=torch.float16, mask=mask, sq=17)

    constants = compile_constants(
        "forward", config, d=64, dv=8, aligned=aligned, mask=mask_flags(mask), precision="ieee"
    )
    assert (constants["BLOCK_DV"], constants["EVEN_DV"]) == (width, False)
