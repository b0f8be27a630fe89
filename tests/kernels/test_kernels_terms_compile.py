import itertools
import json
import os
import subprocess
import sys

import pytest
import torch

from flashverify_kernels import config_error, launch_config

pytestmark = pytest.mark.slow

FORWARD = ["softcap", "alibi", "bias", "sink", "dropout"]
DQ = ["softcap", "alibi", "dbias", "dropout"]
DKDV = ["softcap", "alibi", "bias", "dropout"]
# A kernel with all terms, and one with one term, where registers are scarcest; the others are thorough.
CONFIGS = [("dq", 80, 64, "float16", DQ)]
ALONE = [("dkdv", 90, 64, "float16", ["softcap"])]
OTHERS = [
    ("forward", 100, 64, "float16", FORWARD),
    ("forward", 80, 64, "float16", FORWARD),
    ("forward", 90, 72, "bfloat16", FORWARD),
    ("dq", 90, 64, "float32", DQ),
    ("dkdv", 80, 64, "float32", DKDV),
    ("dkdv", 90, 64, "float16", DKDV),
    ("dkdv", 100, 64, "bfloat16", DKDV),
]
OTHERS_ALONE = [
    *(("forward", 90, 128, "float16", [term]) for term in ("relative_bias", "softcap", "alibi", "sink")),
    ("forward", 90, 64, "float16", ["dropout"]),
    ("forward", 90, 64, "float16", ["bias"]),
    ("dq", 90, 64, "float16", ["dbias"]),
    ("dq", 90, 64, "float16", ["drelative_bias"]),
    ("dkdv", 90, 64, "float16", ["dropout"]),
]

SCRIPT = """
import json, sys
import torch
from flashverify_kernels.aot import compile_kernel

results = []
for kernel, capability, d, dtype, terms in json.loads(sys.argv[1]):
    built = compile_kernel(
        kernel, capability, d=d, dv=d, dtype=getattr(torch, dtype), mask="causal", key_lengths=True, terms=terms
    )
    unfilled = [
        line for line in built.ttir.splitlines()
        if "tt.load" in line and "tensor" in line and line.split("tt.load")[1].split(" : ")[0].count("%") == 2
    ]
    results.append({"stack": built.stack, "shared": built.shared, "unfilled": unfilled, "wgmma": "wgmma.mma_async" in built.ptx})
print(json.dumps(results))
"""


@pytest.fixture(scope="module", params=["some", pytest.param("others", marks=pytest.mark.thorough)])
def compiled(request):
    """What all terms at once, and then what one by itself compiles to, new or from Triton's cache."""
    whole, alone = {"some": (CONFIGS, ALONE), "others": (OTHERS, OTHERS_ALONE)}[request.param]
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(whole + alone)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = list(zip(whole + alone, json.loads(done.stdout), strict=True))
    return found[: len(whole)], found[len(whole) :]


def test_all_terms_compile_without_a_gpu_and_fit(compiled):
    for config, result in [*compiled[0], *compiled[1]]:
        assert result["shared"] <= 163 * 1024, config
        assert result["unfilled"] == [], config


def test_one_term_alone_does_not_spill_and_keeps_the_tensor_cores(compiled):
    for config, result in compiled[1]:
        assert result["stack"] == 0, config
        assert result["wgmma"], config


@pytest.mark.parametrize("limit", [227 * 1024, 163 * 1024, 99 * 1024])
def test_every_default_with_terms_can_be_launched(limit):
    dims, dtypes = (8, 64, 72, 128, 256), (torch.float16, torch.float32)
    for kind, d, dv, dtype, pairs, sq in itertools.product(
        ("forward", "dq", "dkdv"), dims, dims, dtypes, ("terms", "bias"), (1, 4096)
    ):
        options = {"d": d, "dv": dv, "dtype": dtype, "pairs": pairs, "limit": limit}
        assert config_error(kind, launch_config(kind, mask="causal", sq=sq, **options), **options) is None
