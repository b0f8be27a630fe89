"""The kernels for Hopper GPUs, as far as a CPU shows them; a GPU shows their bits by benchmarks/gpu_paths.py."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from flashverify_kernels import Bitmap, BlockMask, Configs, LaunchConfig, Options, Packed, hopper, launch_config
from flashverify_kernels.arguments import in_order
from flashverify_kernels.plain import from_configs, to_configs
from flashverify_kernels.runtime import INTERPRETED
from flashverify_kernels.validation import check_call

CONFIG = LaunchConfig(block_m=64, block_n=128, num_stages=1, hopper=True)
SQUARE = LaunchConfig(block_m=64, block_n=64, num_stages=1, hopper=True)
LENGTHS = torch.tensor([3, 20], dtype=torch.int32)
LIMITS = torch.tensor([0, 7, 20], dtype=torch.int32)
PACKED = Packed(cu_q=LIMITS, cu_k=LIMITS, max_q=13, max_k=13)
needs_an_interpreter = pytest.mark.skipif(not INTERPRETED, reason="tensors on the CPU")


def suited(config=CONFIG, dtype=torch.float16, d=64, shift=0, **given):
    shape = (2, 2, 20, d)
    if "packed" in given:
        shape = (1, 2, 20, d)
    elif given.get("layout") == "bshd":
        shape = (2, 20, 2, d)
    q, k, v = (
        torch.zeros(2 * 2 * 20 * d + 8, dtype=dtype)[shift:][: torch.Size(shape).numel()].view(shape) for _ in "qkv"
    )
    options = Options(config=Configs(forward=config, dkdv=config), **given)
    call = check_call(q, k, v, options)
    forward = in_order(options, q=q, k=k, v=v, o=torch.empty_like(q))
    backward = in_order(options, q=q, k=k, v=v, do=q, dk=k, dv=v)
    found = [hopper.suits(call, options, kind, x) for kind, x in (("forward", forward), ("dkdv", backward))]
    assert hopper.takes(call, options, "forward", forward) is False  # not on this device
    return found


@needs_an_interpreter
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"causal": "bottom-right", "layout": "bshd"},
        {"window": (None, 3), "d": 128},
        {"causal": "top-left", "scale": -2.0},
        {"window": (3, 0)},
        {"window": (3, None), "d": 128},
        {"causal": "bottom-right", "window": (3, 5)},
        {"blocks": BlockMask.from_bool(torch.ones(1, 1, 1, 1, dtype=torch.bool), rows=128, keys=128), "d": 128},
        {"blocks": BlockMask.from_bool(torch.ones(1, 2, 1, 1, dtype=torch.bool), rows=64, keys=256), "window": (3, 0)},
    ],
)
def test_whole_problems_without_a_mask_or_with_a_band_are_taken(given):
    assert suited(**given) == [True, True]


@needs_an_interpreter
@pytest.mark.parametrize(
    "given",
    [
        {"config": replace(CONFIG, hopper=False)},
        {"dtype": torch.float32, "config": replace(CONFIG, block_n=64)},
        {"d": 32},
        {"shift": 1},
        {"blocks": BlockMask.from_bool(torch.ones(1, 1, 1, 1, dtype=torch.bool), rows=64, keys=64), "config": SQUARE},
        {"blocks": BlockMask.from_bool(torch.ones(1, 1, 1, 1, dtype=torch.bool), rows=64, keys=192), "config": SQUARE},
        {"window": (3, 0), "bitmap": Bitmap.from_bool(torch.ones(1, 1, 20, 20, dtype=torch.bool))},
        {"causal": "top-left", "prefix_lengths": LENGTHS},
        {"key_lengths": LENGTHS},
        {"query_lengths": LENGTHS},
        {"packed": PACKED, "d": 128, "softcap": 2.0},
        {"packed": PACKED, "d": 128, "causal": "top-left", "prefix_lengths": LENGTHS},
        {"softcap": 2.0},
        {"sink": torch.zeros(2)},
    ],
)
def test_what_the_kernels_are_not_written_for_is_not_taken(given):
    assert suited(**given) == [False, False]


@needs_an_interpreter
@pytest.mark.parametrize("mask", [{}, {"causal": "bottom-right"}, {"window": (3, 2)}])
def test_packed_sequences_are_taken_but_by_the_narrow_forward(mask):
    assert suited(packed=PACKED, d=128, **mask) == [True, True]
    assert suited(packed=PACKED, **mask) == [False, True]


@needs_an_interpreter
def test_the_forward_is_taken_in_the_tiles_of_keys_that_its_bits_depend_on_alone():
    assert suited(config=SQUARE) == [False, True]


@needs_an_interpreter
@pytest.mark.parametrize("given", [{}, {"causal": "bottom-right"}, {"window": (3, 0)}])
def test_256_channels_are_taken_forward_in_tiles_of_64_keys(given):
    assert suited(config=SQUARE, d=256, **given) == [True, False]
    assert suited(config=CONFIG, d=256, **given) == [False, False]


def test_256_channels_have_them_forward_without_a_window_or_a_pattern():
    def chosen(kind="forward", mask="none", **given):
        given = {"d": 256, "dv": 256, "dtype": torch.bfloat16, "mask": mask, "sq": 4096, "capability": (9, 0)} | given
        return launch_config(kind, **given)

    assert chosen() == chosen(mask="causal")
    assert (chosen().hopper, chosen().block_n) == (True, 64)
    for other in ({"mask": "window"}, {"mask": "blocks"}, {"dtype": torch.float32}, {"sq": 16}, {"hopper": False}):
        assert not chosen(**other).hopper
    for other in ({"capability": (10, 0)}, {"whole": False}, {"pairs": "terms"}, {"dv": 128}, {"kind": "dkdv"}):
        assert not chosen(**other).hopper


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("mask", ["none", "causal", "left", "window"])
def test_they_are_chosen_on_a_hopper_gpu_where_they_may_be_taken(d, mask):
    def chosen(kind="forward", **given):
        given = {"d": d, "dv": d, "dtype": torch.bfloat16, "mask": mask, "sq": 4096, "capability": (9, 0)} | given
        return launch_config(kind, **given)

    assert (chosen().hopper, chosen().block_n) == (True, 128)
    assert chosen("dkdv").hopper
    assert chosen("dq").hopper is (d == 128)
    packed = {"whole": False, "packed": True}
    assert (chosen(**packed).hopper, chosen(**packed).block_n) == ((True, 128) if d == 128 else (False, 64))
    assert chosen("dkdv", **packed).hopper
    assert chosen("dq", **packed).hopper is (d == 128)
    assert chosen(**packed, capability=None) == chosen(whole=False, capability=None)
    others = (
        {"dtype": torch.float32},
        {"dv": 32},
        {"mask": "blocks"},
        {"mask": "bitmap"},
        {"mask": "prefix"},
        {"sq": 16},
        {"pairs": "terms"},
        {"whole": False},
        {"hopper": False},
    )
    for other in (
        *others,
        {"limit": 99 * 1024},
        {"interpreted": True},
        {"hopper": False},
        {"capability": (10, 0)},
        {"capability": None},
    ):
        assert not chosen(**other).hopper
        assert not chosen("dkdv", **other).hopper
        assert not chosen("dq", **other).hopper


def test_elsewhere_only_a_narrow_forward_of_whole_tensors_has_wide_tiles_of_keys():
    def keys(**given):
        return launch_config(
            "forward", **{"dtype": torch.float16, "mask": "causal", "sq": 4096, "d": 64, "dv": 64} | given
        ).block_n

    assert keys() == 128
    for other in ({"whole": False}, {"d": 128, "dv": 128}, {"mask": "window"}, {"dtype": torch.bfloat16}, {"sq": 9}):
        assert keys(**other) == 64


def test_an_operator_is_given_every_attribute_of_a_configuration():
    given = Configs(forward=CONFIG, dkdv=replace(CONFIG, descriptors=True, hopper=False, num_stages=3))

    assert to_configs(from_configs(given)) == given


@needs_an_interpreter
def test_a_block_has_as_many_rows_as_a_program():
    blocks = BlockMask.from_bool(torch.ones(1, 1, 1, 1, dtype=torch.bool), rows=64, keys=128)

    assert suited(blocks=blocks) == [True, True]
    assert suited(blocks=blocks, d=128) == [False, True]


# A forward and both kernels of the backward, one with a left side and one with a pattern; the others are thorough.
CONFIGS = [
    [
        ("dkdv", 64, 3, False, False),
        ("narrow_forward", 64, 2, True, False),
        ("dq", 128, 2, False, True),
    ],
    pytest.param(
        [
            ("narrow_forward", 64, 2, False, False),
            ("forward", 128, 2, False, False),
            ("forward", 128, 2, True, False),
            ("forward", 128, 2, False, True),
            ("forward", 256, 2, False, False),
            ("dq", 128, 2, True, False),
        ],
        marks=pytest.mark.thorough,
    ),
]
SCRIPT = """
import json, sys
import torch
from flashverify_kernels.hopper_aot import compile_hopper

found = {}
for kernel, d, stages, left, blocks in json.loads(sys.argv[1]):
    built = compile_hopper(kernel, d=d, dtype=torch.float16, causal=True, left=left, blocks=blocks, stages=stages)
    waits = [line.split()[-1] for line in built.ptx.splitlines() if "wgmma.wait_group" in line]
    found[f"{kernel} {d} {left} {blocks}"] = [built.registers, built.stack, built.shared, waits, built.ptx.count("cp.async.bulk.tensor")]
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("configs", CONFIGS, ids=["some", "others"])
def test_they_compile_without_spills_and_a_product_stays_under_way_behind_another(configs):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(configs)], capture_output=True, text=True, env=environment, check=True
    )

    for registers, stack, shared, waits, copies in json.loads(done.stdout).values():
        assert stack == 0
        assert registers <= 168
        assert shared <= 227 * 1024
        assert "1;" in waits
        assert copies > 0
