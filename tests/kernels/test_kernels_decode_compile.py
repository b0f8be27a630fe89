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
    (90, {"d": 128, "dv": 128, "dtype": "float16", "page_size": 64}),
    (90, {"d": 128, "dv": 128, "dtype": "float16", "mask": "tree", "rows": 32}),
    (90, {"d": 128, "dv": 128, "dtype": "float16", "mask": "window", "rows": 64}),
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
from flashverify_kernels.decode_aot import compile_source, decode_source, merge_source

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


KEYS = """
import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.jit import create_function_from_signature
from flashverify_kernels.decode_aot import KERNELS

for fn in KERNELS.values():
    bind = create_function_from_signature(fn.signature, fn.params, CUDABackend(GPUTarget("cuda", 90, 32)))
    keys = set()
    for integer, number, offset in ((1, 0.5, 0), (16, 1.0, 1), (7, -2.0, 8)):
        pointer = torch.zeros(32, dtype=torch.float16)[offset:]
        values = {}
        for p in fn.params:
            values[p.name] = pointer if p.name.endswith("_ptr") else 1 if p.is_constexpr else integer
            if p.name.startswith("stride") and integer == 7:
                values[p.name] = 2**40
            if p.name in ("scale_log2", "lse_scale", "to_log2", "from_log2"):
                values[p.name] = number
        keys.add(str(bind(**values)[1]))
    assert len(keys) == 1, keys
"""


def run(code, *arguments, cache=None):
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if cache is not None:
        env["TRITON_CACHE_DIR"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return json.loads(run(SCRIPT, json.dumps([DECODE, MERGE]), cache=tmp_path_factory.mktemp("triton")))


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


def test_runtime_values_are_no_part_of_the_compile_key():
    run(KEYS)
