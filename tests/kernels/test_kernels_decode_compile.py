import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# One of each kind of address, mask and tile at the head dimensions that matter for speed.
DECODE = [
    (90, {"d": 128, "dv": 128, "dtype": "float16"}),
    (90, {"d": 128, "dv": 128, "dtype": "bfloat16", "mask": "causal", "page_size": 16}),
    (90, {"d": 128, "dv": 128, "dtype": "float16", "mask": "tree", "rows": 32}),
    (90, {"d": 128, "dv": 128, "dtype": "float16", "mask": "window", "rows": 64}),
    (
        90,
        {
            "d": 128,
            "dv": 128,
            "dtype": "float16",
            "mask": "causal",
            "terms": ["softcap", "alibi", "bias"],
            "query_lengths": True,
        },
    ),
    (80, {"d": 64, "dv": 64, "dtype": "float16", "page_size": 16}),
    (80, {"d": 128, "dv": 128, "dtype": "float32"}),
    (100, {"d": 256, "dv": 256, "dtype": "bfloat16"}),
]
MERGE = [
    (90, {"parts": 32, "dv": 128, "dtype": "float16", "decoded": True}),
    (90, {"parts": 3, "dv": 128, "dtype": "bfloat16"}),
    (80, {"parts": 4, "dv": 128, "dtype": "float16", "backward": True}),
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


@pytest.fixture(scope="module")
def compiled():
    """Compiled, or taken from Triton's cache: its key holds the source, the options and the compilers."""
    return json.loads(run(SCRIPT, json.dumps([DECODE, MERGE])))


def test_nothing_spills_and_everything_fits(compiled):
    assert [result["stack"] for result in compiled] == [0] * len(compiled)
    assert all(result["shared"] <= 163 * 1024 for result in compiled)


def test_no_masked_load_is_without_a_fill(compiled):
    assert [result["unfilled"] for result in compiled] == [[]] * len(compiled)


def test_keys_are_copied_ahead_in_wide_pieces(compiled):
    for (_, options), result in zip(DECODE, compiled, strict=False):
        assert result["copies"], options
        assert result["matrix"] == (options["dtype"] != "float32"), options
    for result in compiled[len(DECODE) :]:
        assert result["wide"]
