import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# A kind of address, mask and tile each at the head dimensions that matter for speed; the others are thorough.
TERMS = {"mask": "causal", "terms": ["softcap", "alibi", "bias"], "query_lengths": True}
DECODE = [
    (90, {"d": 128, "dv": 128, "dtype": "bfloat16", "mask": "causal", "page_size": 16}),
    (80, {"d": 128, "dv": 128, "dtype": "float32"}),
]
MERGE = [
    (80, {"parts": 4, "dv": 128, "dtype": "float16", "backward": True}),
]
OTHER_DECODE = [
    (90, {"d": 128, "dv": 128, "dtype": "float16", "mask": "tree", "rows": 32}),
    (90, {"d": 128, "dv": 128, "dtype": "float16"}),
    (90, {"d": 128, "dv": 128, "dtype": "float16", "mask": "window", "rows": 64}),
    (90, {"d": 128, "dv": 128, "dtype": "float16", **TERMS}),
    (80, {"d": 64, "dv": 64, "dtype": "float16", "page_size": 16}),
    (100, {"d": 256, "dv": 256, "dtype": "bfloat16"}),
]
OTHER_MERGE = [
    (90, {"parts": 3, "dv": 128, "dtype": "bfloat16"}),
    (90, {"parts": 32, "dv": 128, "dtype": "float16", "decoded": True}),
    (100, {"parts": 600, "dv": 256, "dtype": "float32", "backward": True}),
]

SCRIPT = """
import json, sys
import torch
from flashverify_kernels.aot import compile_source
from flashverify_kernels.decode_aot import decode_source, merge_source

results = []
for make, cases in zip((decode_source, merge_source), json.loads(sys.argv[1])):
    for capability, options in cases:
        built = compile_source(make(**{**options, "dtype": getattr(torch, options["dtype"])}), capability)
        # a scalar load has no mask: a page number, and the length of a sequence
        unfilled = [
            line for line in built.ttir.splitlines()
            if "tt.load" in line and line.split("tt.load")[1].split(" : ")[0].count("%") == 2
        ]
        results.append({
            "stack": built.stack, "shared": built.shared, "registers": built.registers, "unfilled": unfilled,
            "matrix": "mma" in built.ptx, "copies": "cp.async.cg" in built.ptx, "wide": ".v4." in built.ptx,
        })
print(json.dumps(results))
"""


def run(code, *arguments):
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["some", pytest.param("others", marks=pytest.mark.thorough)])
def compiled(request):
    """What decoding and what merging compile to, new or from Triton's cache, whose key holds source, options and compilers."""
    decode, merge = {"some": (DECODE, MERGE), "others": (OTHER_DECODE, OTHER_MERGE)}[request.param]
    found = list(zip(decode + merge, json.loads(run(SCRIPT, json.dumps([decode, merge]))), strict=True))
    return found[: len(decode)], found[len(decode) :]


def test_nothing_spills_and_everything_fits(compiled):
    for config, result in [*compiled[0], *compiled[1]]:
        assert result["stack"] == 0, config
        assert result["shared"] <= 163 * 1024, config


def test_no_masked_load_is_without_a_fill(compiled):
    assert [config for config, result in [*compiled[0], *compiled[1]] if result["unfilled"]] == []


def test_keys_are_copied_ahead_in_wide_pieces(compiled):
    for (_, options), result in compiled[0]:
        assert result["copies"], options
        assert result["matrix"] == (options["dtype"] != "float32"), options
    for config, result in compiled[1]:
        assert result["wide"], config
