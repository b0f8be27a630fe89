import json
import os
import subprocess
import sys

import pytest
import torch

from flashverify_kernels.aot import compile_kernel
from flashverify_kernels.runtime import INTERPRETED

# Each kernel and addressing on two generations, and masks whose schedules differ; their other pairs are thorough.
CONFIGS = [
    ("forward", 90, 128, "float16", "causal+blocks", True),
    ("dq", 90, 64, "float16", "causal packed", True),
    ("delta", 90, 128, "float16", "none", True),
    ("dkdv", 80, 24, "bfloat16", "window+bitmap", False),
]
OTHERS = [
    ("dkdv", 90, 64, "float16", "blocks", True),
    ("forward", 90, 64, "float16", "none", True),
    ("forward", 90, 128, "float16", "causal", True),
    ("dq", 90, 64, "float16", "causal", True),
    ("dkdv", 90, 64, "float16", "none", True),
    ("forward", 90, 64, "float16", "tree", True),
    ("forward", 90, 64, "float16", "window", True),
    ("dq", 90, 128, "float16", "window", True),
    ("forward", 90, 64, "float16", "prefix", True),
    ("dq", 90, 64, "float16", "prefix+left packed", True),
    ("dkdv", 90, 64, "float16", "prefix", True),
    ("dkdv", 90, 24, "bfloat16", "tree", False),
    ("dq", 80, 64, "float32", "causal", False),
    ("dkdv", 80, 64, "float16", "causal", True),
    ("forward", 100, 64, "float16", "window", True),
    ("dq", 100, 64, "float16", "causal+blocks", True),
    ("forward", 80, 64, "float16", "bitmap packed", True),
    ("delta", 80, 24, "bfloat16", "none packed", False),
]
# Those of each list that are fast paths of the Hopper configurations.
FAST = {"some": range(3), "others": range(8)}
# A few words saved before a loop and read after it are no cost, and dK/dV has no register to spare: what matters is that the
# loops themselves do not spill, which tests/compiling/test_compiling.py reads off the machine code.
SMALL_STACK = 128

SCRIPT = """
import json, sys
import torch
from flashverify_kernels.aot import compile_kernel

results = []
for kernel, capability, d, dtype, mask, aligned in json.loads(sys.argv[1]):
    mask, _, packed = mask.partition(" ")
    built = compile_kernel(
        kernel, capability, d=d, dv=d, dtype=getattr(torch, dtype), mask=mask, packed=bool(packed),
        query_lengths=mask == "window", key_lengths=mask != "none" and not packed, dlse=kernel == "delta", aligned=aligned,
    )
    unfilled = [
        line for line in built.ttir.splitlines()
        if "tt.load" in line and line.split("tt.load")[1].split(" : ")[0].count("%") == 2
    ]
    results.append({
        "stack": built.stack, "shared": built.shared, "registers": built.registers, "unfilled": unfilled,
        "wgmma": "wgmma.mma_async" in built.ptx, "wide": "cp.async.cg" in built.ptx or ".v4." in built.ptx,
    })
print(json.dumps(results))
"""


KEYS = """
import sys
import torch
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from flashverify_kernels.aot import KERNELS
from flashverify_kernels.decode_aot import KERNELS as OTHERS

class Driver:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

def value(name, kind, integer, number, pointer, absent):
    if hasattr(kind, "_fields"):
        return kind(*(value(n, k, integer, number, pointer, absent) for n, k in kind.__annotations__.items()))
    if kind is tl.constexpr:
        return 1
    if isinstance(kind, tl.dtype):
        return number if kind == tl.float32 else 2**40 if kind == tl.int64 and integer == 7 else integer
    if name in ("scale_log2", "lse_scale", "to_log2", "from_log2", "cap_ratio", "cap_log2", "keep_share", "keep_scale"):
        return number
    return None if name == absent else pointer

def names(items):
    pairs = [(n, getattr(k, "annotation", k)) for n, k in items]
    inner = [names(k.__annotations__.items()) for _, k in pairs if hasattr(k, "_fields")]
    return {n for n, _ in pairs}.union(*inner)

def key(fn, bind, integer, number, offset, absent=""):
    pointer = torch.zeros(32, dtype=torch.float16)[offset:]
    parameters = fn.signature.parameters.items()
    return str(bind(**{n: value(n, p.annotation, integer, number, pointer, absent) for n, p in parameters})[1])

driver.set_active(Driver())
for fn in (*KERNELS.values(), *OTHERS.values()):
    bind = fn.create_binder()[-1]
    keys = {key(fn, bind, *values) for values in ((1, 0.5, 0), (16, 1.0, 1), (7, -2.0, 8))}
    assert len(keys) == 1, keys
    assert "constexpr" not in keys.pop().replace("('constexpr', 1)", "")
    for absent in ("k_lengths", "slopes", "k_lengths_ptr", "dlse_ptr"):
        concerned = absent in names(fn.signature.parameters.items())
        assert concerned == (key(fn, bind, 1, 0.5, 0) != key(fn, bind, 1, 0.5, 0, absent)), (fn, absent)
"""


@pytest.fixture(scope="module", params=["some", pytest.param("others", marks=pytest.mark.thorough)])
def compiled(request):
    """Which list, and pairs of it and of what it compiles to, new or from Triton's cache, whose key holds source, options and compilers."""
    configs = {"some": CONFIGS, "others": OTHERS}[request.param]
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(configs)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return request.param, list(zip(configs, json.loads(done.stdout), strict=True))


@pytest.mark.slow
def test_every_kernel_compiles_without_a_gpu(compiled):
    assert all(result["shared"] <= 163 * 1024 for _, result in compiled[1])


@pytest.mark.slow
def test_no_masked_load_is_without_a_fill(compiled):
    assert [config for config, result in compiled[1] if result["unfilled"]] == []


@pytest.mark.slow
def test_fast_paths_use_tensor_cores_and_wide_accesses_and_hardly_spill(compiled):
    name, found = compiled
    for config, result in (found[n] for n in FAST[name]):
        assert result["stack"] <= (0 if config[0] == "forward" else SMALL_STACK), config
        assert result["wide"], config
        assert result["wgmma"] == (config[0] != "delta"), config


@pytest.mark.slow
def test_runtime_values_strides_and_alignment_are_no_part_of_the_compile_key():
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", KEYS], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled in this process")
def test_an_interpreting_process_says_that_it_cannot_compile():
    with pytest.raises(RuntimeError, match="unset TRITON_INTERPRET"):
        compile_kernel("forward", 90, d=64, dv=64, dtype=torch.float16)


@pytest.mark.slow
@pytest.mark.thorough
def test_cpu_tensors_without_the_interpreter_are_refused():
    code = "import torch\nfrom flashverify_kernels import attention\nq = torch.zeros(1, 1, 1, 8)\nattention(q, q, q)"
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "CPU tensors need Triton's interpreter: set TRITON_INTERPRET=1 before importing triton" in done.stderr
