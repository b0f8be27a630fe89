import json
import os
import subprocess
import sys

import pytest
import torch

from flashverify_kernels import LaunchConfig, config_error, launch_config

# Tiles whose fp32 operands a warp group reads from shared memory, and one of 16 bits whose operands it does not.
CONFIGS = [
    [("dkdv", 32, 32, 1, "float16")],
    pytest.param([("dq", 64, 16, 1, "float32"), ("dkdv", 16, 64, 2, "float32")], marks=pytest.mark.thorough),
]

SCRIPT = """
import json, sys
import torch
from flashverify_kernels import LaunchConfig
from flashverify_kernels.aot import compile_kernel
from flashverify_kernels.config import shared_memory

results = []
for kernel, m, n, stages, dtype in json.loads(sys.argv[1]):
    options = {
        "d": 64, "dv": 64, "dtype": getattr(torch, dtype), "config": LaunchConfig(block_m=m, block_n=n, num_stages=stages)
    }
    precision = "tf32x3" if dtype == "float32" else "ieee"
    built = compile_kernel(kernel, 90, mask="causal", key_lengths=True, precision=precision, **options)
    results.append((built.shared, shared_memory(kernel, **options)))
print(json.dumps(results))
"""


@pytest.mark.slow
@pytest.mark.parametrize("configs", CONFIGS, ids=["some", "others"])
def test_what_a_launch_needs_is_not_underestimated(configs):
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(configs)], env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    for config, (needed, estimate) in zip(configs, json.loads(done.stdout), strict=True):
        assert needed <= estimate <= 1.25 * needed, config


@pytest.mark.parametrize(("block_m", "block_n"), [(32, 128), (64, 128), (128, 64)])
def test_tiles_that_an_h200_has_no_room_for_are_refused(block_m, block_n):
    # compiled for sm_90 they take 254,208, 311,808 and 328,704 bytes; there are 232,448
    config = LaunchConfig(block_m=block_m, block_n=block_n)

    assert "bytes of shared memory needed" in str(config_error("dkdv", config, d=64, dv=128, dtype=torch.float32))


@pytest.mark.parametrize("kind", ["forward", "dq", "dkdv"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("limit", [227 * 1024, 163 * 1024, 99 * 1024])
def test_every_default_can_be_launched(kind, dtype, limit):
    for d in (8, 64, 72, 128, 256):
        for sq in (1, 4096):
            dims = {"d": d, "dv": d, "dtype": dtype, "limit": limit}
            assert config_error(kind, launch_config(kind, mask="causal", sq=sq, **dims), **dims) is None
