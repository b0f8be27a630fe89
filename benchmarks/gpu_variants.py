"""Times schedules of the bundled kernels side by side on a GPU, beside SDPA's cuDNN and FlashAttention backends.

    python benchmarks/gpu_variants.py [--limit SECONDS] [--tutorial FILE] [--dtype fp16|bf16]

Worker processes compile and check against float64 on a small problem; then the main process times, interleaved.
"""

from __future__ import annotations

import argparse
import concurrent.futures as futures
import importlib.util
import multiprocessing
import os
import pathlib
import statistics as stats_of
import sys
import time

BATCH, HEADS, LENGTH = 4, 16, 4096
DEVICE = os.environ.get("VARIANTS_DEVICE", "cuda")
HERE = pathlib.Path("/tmp/fv_variants")

_LAGS = "if part == FULL and k_tiles is not None"
"""Where the forward decides to let the product of weights and values lag."""

FORWARD = {
    64: [
        ("ptr", 128, 64, 8, 3),
        *[("tma", *c) for c in ((64, 128, 4, 2), (64, 64, 4, 2), (64, 64, 4, 4), (128, 64, 4, 2), (64, 128, 4, 3))],
        *[("tma+fma", *c) for c in ((64, 128, 4, 2), (128, 64, 4, 2))],
        *[("ptr", *c) for c in ((64, 128, 4, 2), (64, 64, 4, 3))],
        *[("lag", *c) for c in ((64, 64, 4, 3), (64, 64, 4, 4))],
        ("lag+fma", 64, 64, 4, 4),
    ],
    128: [
        ("ptr", 64, 64, 4, 3),
        *[("tma", *c) for c in ((64, 64, 4, 3), (128, 64, 4, 2), (64, 32, 4, 3), (64, 32, 4, 4), (128, 64, 8, 2), (64, 64, 4, 4))],
        *[("tma+r128", *c) for c in ((128, 64, 8, 2), (64, 32, 4, 3))],
        *[("tma+fma", *c) for c in ((64, 64, 4, 3), (128, 64, 4, 2))],
        ("tma+fma+r128", 128, 64, 8, 2),
        *[("ptr", *c) for c in ((128, 64, 4, 2), (128, 64, 8, 3))],
        ("ptr+r128", 128, 64, 8, 2),
        *[("lag", *c) for c in ((128, 64, 4, 2), (64, 32, 4, 3))],
    ],
}
DQ = {
    64: [("ptr", 128, 64, 4, 4), *[("tma", *c) for c in ((128, 64, 4, 3), (128, 64, 4, 2), (64, 64, 4, 4))], ("ptr", 128, 64, 4, 3)],
    128: [("ptr", 128, 64, 8, 3), *[("tma", *c) for c in ((128, 64, 8, 3), (64, 32, 4, 3), (64, 32, 4, 4), (128, 32, 8, 4))]],
}
DKDV = {
    64: [
        ("ptr", 128, 64, 4, 1),
        *[(how, *c) for c in ((64, 64, 4, 1), (64, 128, 8, 1), (32, 128, 4, 2)) for how in ("tma", "ptr")],
        ("tma", 32, 128, 4, 3), ("ptr", 32, 128, 4, 3), ("ptr", 64, 64, 4, 2), ("tma+r168", 64, 64, 4, 2), ("tma", 32, 64, 4, 2), ("tma+r128", 64, 128, 8, 1),
    ],
    128: [
        ("ptr", 64, 128, 8, 1),
        *[(how, *c) for c in ((64, 64, 4, 2), (32, 64, 4, 3), (64, 64, 4, 1)) for how in ("tma", "ptr")],
        ("ptr", 64, 64, 4, 3), ("tma", 64, 64, 4, 3), ("tma", 128, 64, 4, 1), ("ptr", 128, 64, 4, 1),
    ],
}
KERNELS = {"forward": FORWARD, "dq": DQ, "dkdv": DKDV}


def kernel_of(kernel, edit):
    from flashverify_kernels.device import dkdv, dq, forward

    if kernel == "forward" and edit == "tma":
        source = pathlib.Path(forward.__file__).read_text()
        assert source.count(_LAGS) == 1
        HERE.mkdir(exist_ok=True)
        file, own = HERE / "prompt_forward.py", HERE / f"prompt_forward.{os.getpid()}"
        own.write_text(source.replace(_LAGS, "if part < 0 and k_tiles is not None"))
        own.replace(file)
        if "prompt_forward" not in sys.modules:
            spec = importlib.util.spec_from_file_location("prompt_forward", file)
            sys.modules["prompt_forward"] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return sys.modules["prompt_forward"].forward_kernel
    return {"forward": forward.forward_kernel, "dq": dq.dq_kernel, "dkdv": dkdv.dkdv_kernel}[kernel]


def descriptor(x, rows):
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, x.shape[3]])


def call_of(kernel, variant, x, causal):
    """A function that launches the variant on the tensors `x`, made once: descriptors and arguments are not timed."""
    from flashverify_kernels import arguments as a
    from flashverify_kernels.config import LaunchConfig
    from flashverify_kernels.options import Options
    from flashverify_kernels.validation import check_call

    edit, m, n, warps, stages = variant
    options = Options(causal="top-left" if causal else None)
    call = check_call(x["q"], x["k"], x["v"], options)
    names = {"forward": "q k v o", "dq": "q k v do dq", "dkdv": "q k v do dk dv"}[kernel].split()
    tensors = {name: x[name] for name in names}
    config = LaunchConfig(block_m=m, block_n=n, num_warps=warps, num_stages=stages)
    args = {**a.views(tensors), **a.records(call, options, kernel), **a.constants(call, kernel, tensors)}
    args |= {"BLOCK_M": m, "BLOCK_N": n, "num_warps": warps, "num_stages": stages}
    args["stats"] = a.statistics(call, lse2=x["lse2"], delta=None if kernel == "forward" else x["delta"])
    if kernel == "forward":
        args["enable_fp_fusion"] = "fma" in edit
    how, *extras = edit.split("+")
    for extra in extras:
        if extra.startswith("r"):
            args["maxnreg"] = int(extra[1:])
    if kernel == "dq":
        args["ds_ptr"] = None
    streamed = ("q", "do") if kernel == "dkdv" else ("k", "v")
    for name in streamed:
        args[f"{name}_tiles"] = None if how == "ptr" else descriptor(x[name], m if kernel == "dkdv" else n)
    fn = kernel_of(kernel, how)
    rows, heads, block = (x["k"].shape[2], call.kv_heads, n) if kernel == "dkdv" else (x["q"].shape[2], call.heads, m)
    grid = (call.batch * heads * -(-rows // block),)
    return lambda: fn[grid](**args)


def problem(batch, heads, length, d, dtype, causal):
    import torch

    g = torch.Generator(DEVICE).manual_seed(0)
    x = {
        n: torch.randn(batch, heads, length, d, generator=g, device=DEVICE, dtype=dtype) for n in ("q", "k", "v", "do")
    }
    for n in ("o", "dq", "dk", "dv"):
        x[n] = torch.full_like(x["q"], float("nan"))
    x["lse2"] = torch.full((batch, heads, length), float("nan"), device=DEVICE)
    x["delta"] = torch.zeros_like(x["lse2"])
    return x


def exact(x, causal):
    import torch

    q, k, v = (x[n].double().requires_grad_() for n in "qkv")
    s = q @ k.mT * q.shape[3] ** -0.5
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], device=DEVICE, dtype=torch.bool).triu(1), float("-inf"))
    o = s.softmax(-1) @ v
    grads = torch.autograd.grad(o, (q, k, v), x["do"].double())
    return dict(zip(("o", "dq", "dk", "dv"), (o.detach(), *grads), strict=True)), s.detach().logsumexp(-1)


def checked(task):
    """Compile and launch one variant on a small problem; its largest relative error, registers and spills."""
    kernel, d, causal, variant, name = task
    import torch

    torch.zeros(1, device=DEVICE)  # a context, before a thread of autograd asks for one
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[name]
    x = problem(1, 2, 331, d, dtype, causal)
    truth, lse = exact(x, causal)
    x["delta"].copy_((truth["o"] * x["do"].double()).sum(-1))
    if kernel != "forward":
        x["lse2"].copy_(lse * 1.4426950408889634)
    try:
        built = call_of(kernel, variant, x, causal)()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001
        return task, f"{type(error).__name__} {str(error)[:70]!r}", None
    out = {"forward": ("o",), "dq": ("dq",), "dkdv": ("dk", "dv")}[kernel]
    error = max(float((x[n].double() - truth[n]).norm() / truth[n].norm()) for n in out)
    info = f"{built.n_regs:3} regs {built.n_spills:3} spills {built.metadata.shared >> 10:3} KiB"
    return task, error, info


def reference(backend, x, causal, direction):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    q, k, v = (x[n].detach().clone().requires_grad_(direction == "backward") for n in "qkv")

    def forward():
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return sdpa(q, k, v, is_causal=causal)

    if direction == "forward":
        return forward
    o = forward()
    return lambda: torch.autograd.grad(o, (q, k, v), x["do"], retain_graph=True)


def tutorial(module, x, causal):
    q, k, v = (x[n].detach() for n in "qkv")
    return lambda: module.attention(q, k, v, causal, q.shape[3] ** -0.5)


def timed(calls, rounds):
    import torch

    good = {}
    for name, call in calls.items():
        try:
            call()
            call()
            torch.cuda.synchronize()
            good[name] = call
        except Exception as error:  # noqa: BLE001
            print("  failed:", name, str(error)[:100])
    evict = torch.empty(256 << 20, dtype=torch.int8, device=DEVICE)
    events = {name: [] for name in good}
    for _ in range(rounds):
        for name, call in good.items():
            evict.zero_()
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            call()
            b.record()
            events[name].append((a, b))
    torch.cuda.synchronize()
    return {name: stats_of.median(a.elapsed_time(b) for a, b in pairs) for name, pairs in events.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=100)
    parser.add_argument("--compile", type=float, default=60)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--tutorial")
    options = parser.parse_args()
    begun = time.time()
    order = [(k, d, c) for k in ("forward", "dkdv", "dq") for d in (64, 128) for c in (False, True)]
    tasks = [(k, d, c, v, options.dtype) for k, d, c in order for v in KERNELS[k][d]]
    tasks.sort(key=lambda t: KERNELS[t[0]][t[1]].index(t[3]) // 3)  # a part of every cell first
    done = {}
    pool = futures.ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn"))
    waiting = [pool.submit(checked, t) for t in tasks]
    try:
        for future in futures.as_completed(waiting, timeout=options.compile):
            task, error, info = future.result()
            done[task] = (error, info)
    except futures.TimeoutError:
        pass
    workers = list(pool._processes.values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.kill()
    print(f"{len(done)} of {len(tasks)} variants compiled and checked in {time.time() - begun:.0f} s", flush=True)

    import torch
    import triton

    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[options.dtype]
    module = None
    if options.tutorial:
        spec = importlib.util.spec_from_file_location("tutorial", options.tutorial)
        module = importlib.util.module_from_spec(spec)
        sys.modules["tutorial"] = module
        spec.loader.exec_module(module)
    for d in (64, 128):
        for causal in (False, True):
            x = problem(BATCH, HEADS, LENGTH, d, dtype, causal)
            pairs = 2.0 * BATCH * HEADS * LENGTH**2 * d * (0.5 if causal else 1)
            for kernel, products in (("forward", 2), ("dkdv", 4), ("dq", 3)):
                if time.time() - begun > options.limit:
                    print("out of time")
                    return 0
                calls, notes = {}, {}
                if kernel == "forward":
                    for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
                        calls[backend] = reference(backend, x, causal, "forward")
                    if module:
                        calls["tutorial"] = tutorial(module, x, causal)
                if kernel == "dkdv":
                    for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
                        calls[backend + " whole backward"] = reference(backend, x, causal, "backward")
                for v in KERNELS[kernel][d]:
                    error, info = done.get((kernel, d, causal, v, options.dtype), ("not compiled in time", None))
                    name = "{:12} {}x{} w{} s{}".format(*v)
                    if info is None or not error < (2e-2 if options.dtype == "bf16" else 3e-3):
                        print("  left out:", kernel, d, causal, name, error, info)
                        continue
                    calls[name], notes[name] = call_of(kernel, v, x, causal), f"{info} error {error:.1e}"
                times = timed(calls, options.rounds)
                print(f"== {kernel} D={d} {'causal' if causal else 'full'} ({time.time() - begun:.0f} s)")
                for name, ms in sorted(times.items(), key=lambda p: p[1]):
                    flops = pairs * (5 if "whole" in name else products)
                    print(f"  {flops / ms / 1e9:6.0f} TFLOP/s {ms:7.4f} ms  {name:24} {notes.get(name, '')}")
                sys.stdout.flush()
                if kernel == "forward":  # the backward kernels read these
                    calls[next(iter(notes))]()
                    x["delta"].copy_((x["o"].float() * x["do"].float()).sum(-1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
