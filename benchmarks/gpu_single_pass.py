"""What a backward in one walk would cost on a Hopper GPU beside the bundled one in two kernels and cuDNN's.

    python benchmarks/gpu_single_pass.py [--json FILE] [--seconds 1]

dK, dV and dQ of the same tiles take five products, dQ and dK with dV in kernels of their own seven. But dQ is then added to fp32 memory by
programs of all keys: `any` adds in any order, `ordered` in one that repeats, `not added` computes dQ and leaves it in shared memory, `no dQ`
leaves out its product. fp16, 4,096 tokens; zeros before, delta and the rounding of dQ are part of each. Calls take turns, the caches are
overwritten before each, the times are medians. Errors are against the bundled kernels, relative to the largest element.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS, BATCH, WIDTH = 4096, 4, 2048
PROBLEMS = ((128, False, 1), (128, True, 1), (128, True, 8), (64, False, 1), (64, True, 1))
WAYS = {"any": (False, True, True), "ordered": (True, True, True), "not added": (False, True, False)}
WAYS |= {"no dQ": (False, False, False)}
"""Whether dQ is ordered, computed and added."""
GRADIENTS = ("dq", "dk", "dv")


def in_one_walk(given: dict[str, torch.Tensor], causal: bool, way: str) -> tuple[dict[str, torch.Tensor], Any]:
    """The gradients, and the compiled kernel."""
    from single_pass.kernel import rounded_kernel, single_pass_kernel

    from flashverify_kernels.launch import backward
    from flashverify_kernels.options import Options

    ordered, product, added = WAYS[way]
    inputs = [given[name] for name in ("do", "q", "k", "v", "o", "lse2")]
    delta = backward(*inputs, Options.of({"causal": "top-left"} if causal else {}), needs=(False,) * 6).delta
    b, heads, sq, d = given["q"].shape
    kv_heads, sk = given["k"].shape[1:3]
    sums = torch.zeros(given["q"].shape, dtype=torch.float32, device="cuda")
    counters = torch.zeros(b, heads, sq // 64, dtype=torch.int32, device="cuda")
    out = {name: torch.empty_like(given[name[1]]) for name in GRADIENTS}
    tiles = [tiles_of(x, d) for x in (given["q"], given["k"], given["v"], given["do"], out["dk"], out["dv"])]
    built = single_pass_kernel[(b * kv_heads * (sk // 128),)](
        *tiles,
        tiles_of(sums, d // 2),
        given["lse2"],
        delta,
        counters,
        d**-0.5,
        d**-0.5 * math.log2(math.e),
        heads,
        heads // kv_heads,
        sq,
        sk,
        CAUSAL=causal,
        ORDERED=ordered,
        STAGES=2 if d == 128 else 3,
        PRODUCT=product,
        ADDED=added,
        num_warps=4,
        maxnreg=168,
    )
    if added:
        rounded_kernel[(sums.numel() // 4096,)](sums, out["dq"], d**-0.5, BLOCK=4096, num_warps=8)
    return out, built


def tiles_of(x: torch.Tensor, channels: int) -> Any:
    """A descriptor of a contiguous tensor, in tiles of 64 rows."""
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    layout = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8 * x.itemsize, rank=4)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, 64, channels], layout)


def problem(d: int, causal: bool, group: int) -> dict[str, torch.Tensor]:
    """Normal inputs, O and the base-2 LSE."""
    from flashverify_kernels.launch import forward
    from flashverify_kernels.options import Options

    generator, heads = torch.Generator("cuda").manual_seed(0), WIDTH // d
    found = {
        name: torch.randn(BATCH, n, TOKENS, d, device="cuda", generator=generator).half()
        for name, n in (("q", heads), ("k", heads // group), ("v", heads // group), ("do", heads))
    }
    options = Options.of({"causal": "top-left"} if causal else {})
    found["o"], found["lse2"] = forward(found["q"], found["k"], found["v"], options)
    return found


def cudnn(given: dict[str, torch.Tensor], causal: bool) -> Callable[[], Any]:
    """The whole backward of SDPA by cuDNN."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (given[name].clone().requires_grad_() for name in "qkv")
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        o = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )
    return lambda: torch.autograd.grad(o, (q, k, v), given["do"], retain_graph=True)


def in_turns(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The median time of each call, ms."""
    evictor = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        for name, call in calls.items():
            evictor.zero_()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            marks[name].append((begin, end))
        torch.cuda.synchronize()
    return {name: sorted(x.elapsed_time(y) for x, y in pairs)[len(pairs) // 2] for name, pairs in marks.items()}


def measured(d: int, causal: bool, group: int, seconds: float) -> dict[str, Any]:
    """Times of one problem, and errors, repeats and resources of each way."""
    from flashverify_kernels.launch import backward
    from flashverify_kernels.options import Options

    given, options = problem(d, causal, group), Options.of({"causal": "top-left"} if causal else {})
    inputs = [given[name] for name in ("do", "q", "k", "v", "o", "lse2")]
    right = backward(*inputs, options)
    calls: dict[str, Callable[[], Any]] = {"bundled": lambda: backward(*inputs, options), "cuDNN": cudnn(given, causal)}
    ways = {}
    for way, (_, _, added) in WAYS.items():
        (out, built), (again, _) = in_one_walk(given, causal, way), in_one_walk(given, causal, way)
        names = GRADIENTS if added else GRADIENTS[1:]
        pairs = [(out[name].float(), getattr(right, name).float()) for name in names]
        ways[way] = {
            "errors": {n: float((x - y).abs().max() / y.abs().max()) for n, (x, y) in zip(names, pairs, strict=True)},
            "repeats": {name: torch.equal(out[name], again[name]) for name in names},
            "spills": built.n_spills,
            "shared": built.metadata.shared,
        }
        calls[way] = lambda way=way: in_one_walk(given, causal, way)  # type: ignore[misc]
    return {"d": d, "causal": causal, "group": group, "ms": in_turns(calls, seconds), "ways": ways}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file for the record, a line a problem")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each problem")
    chosen = parser.parse_args()
    for d, causal, group in PROBLEMS:
        found = measured(d, causal, group, chosen.seconds)
        name = f"D = {d}{', causal' if causal else ''}, {group} heads a kv head"
        times = ", ".join(f"{way} {t:.3f} ms ({found['ms']['bundled'] / t:.2f})" for way, t in found["ms"].items())
        print(f"{name}: {times}", flush=True)
        for way, facts in found["ways"].items():
            print(f"  {way}: {facts}", flush=True)
        if chosen.json:
            with open(chosen.json, "a") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
