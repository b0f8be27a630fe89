"""Schedules of the bundled forward, dQ and dK/dV kernels timed side by side on a GPU, beside SDPA's cuDNN and FlashAttention backends.

    python benchmarks/gpu_schedules.py [--dtype fp16|bf16] [--length N] [--seconds S] [--workers N]

Worker processes compile every schedule and compare it with float64 on a small problem of a length that no tile divides; what is wrong
or does not fit is left out and named. Then one process times what is left, interleaved, after the caches were overwritten. A schedule
is `pointers` or `descriptors`, queries and keys per tile, warps and stages; the kernels for Hopper GPUs have their own. TFLOP/s count
2, 3 and 4 products of the visible pairs for the forward, dQ and dK/dV, and 5 for a whole backward.
"""

from __future__ import annotations

import argparse
import concurrent.futures as futures
import multiprocessing
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

BATCH, HEADS, SMALL = 4, 16, 331
PRODUCTS = {"forward": 2, "dq": 3, "dkdv": 4}
WHOLE_BACKWARD = 5
OUTPUTS = {"forward": ("o",), "dq": ("dq",), "dkdv": ("dk", "dv")}
LARGEST_ERROR = {"fp16": 3e-3, "bf16": 2e-2}
SCHEDULES: dict[tuple[str, int], tuple[tuple[int, int, int, int], ...]] = {
    ("forward", 64): ((64, 128, 4, 2), (128, 128, 8, 2), (128, 128, 8, 3), (64, 128, 8, 2), (128, 64, 8, 3)),
    ("forward", 128): ((128, 128, 8, 2), (64, 128, 4, 2), (64, 128, 8, 2), (64, 64, 4, 3)),
    ("dq", 64): ((128, 64, 4, 4), (128, 64, 4, 3)),
    ("dq", 128): ((128, 64, 8, 3),),
    ("dkdv", 64): ((128, 64, 4, 1), (32, 128, 4, 3)),
    ("dkdv", 128): ((64, 128, 8, 1), (64, 64, 4, 2)),
}
"""Queries and keys per tile, warps and stages, by kernel and head dimension."""
HOPPER = {"forward": (128, 128, 8, 2), "dkdv": (64, 128, 8, 1)}
"""Those beside which the kernels for Hopper GPUs stand, which have their own tiles of queries, warps and stages."""


class Task(NamedTuple):
    """One schedule of one kernel on one kind of problem."""

    kernel: str
    d: int
    causal: bool
    how: str
    tile: tuple[int, int, int, int]
    dtype: str

    def name(self) -> str:
        """For the table."""
        m, n, warps, stages = self.tile
        return self.how if self.how == "hopper" else f"{self.how:11} {m}x{n} w{warps} s{stages}"


def problem(task: Task, batch: int, heads: int, length: int) -> dict[str, torch.Tensor]:
    """Normal q, k, v and dO, and outputs that are NaN until they are written."""
    import torch

    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[task.dtype]
    generator, shape = torch.Generator("cuda").manual_seed(0), (batch, heads, length, task.d)
    x = {n: torch.randn(shape, generator=generator, device="cuda", dtype=dtype) for n in ("q", "k", "v", "do")}
    x |= {n: torch.full_like(x["q"], float("nan")) for n in ("o", "dq", "dk", "dv")}
    x["lse2"] = torch.full(shape[:3], float("nan"), device="cuda")
    return x | {"delta": torch.zeros_like(x["lse2"])}


def call_of(task: Task, x: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """A function that launches the kernel; arguments and descriptors are made once and not timed."""
    from flashverify_kernels import Configs, LaunchConfig, Options, arguments, hopper
    from flashverify_kernels.aot import KERNELS
    from flashverify_kernels.tiles import tiles
    from flashverify_kernels.validation import check_call

    m, n, warps, stages = task.tile
    ways = {"descriptors": task.how == "descriptors", "hopper": task.how == "hopper"}
    config = LaunchConfig(block_m=m, block_n=n, num_warps=warps, num_stages=stages, **ways)
    options = Options(causal="top-left" if task.causal else None, config=Configs(**{task.kernel: config}))
    call, kernel = check_call(x["q"], x["k"], x["v"], options), task.kernel
    names = ("q", "k", "v", "o") if kernel == "forward" else ("q", "k", "v", "do", *OUTPUTS[kernel])
    tensors = {name: x[name] for name in names}
    if task.how == "hopper":
        if not hopper.takes(call, options, kernel, tensors):
            raise ValueError("not taken by the Hopper kernels")
        if kernel == "forward":
            return hopper.forward(call, options, tensors, x["lse2"])
        launch = hopper.dq if kernel == "dq" else hopper.dkdv
        return launch(call, options, tensors, x["lse2"], x["delta"])
    given: dict[str, Any] = {
        **arguments.views(tensors),
        **arguments.records(call, options, kernel),
        **tiles(call, options, kernel, tensors),
        **arguments.constants(call, kernel, tensors),
        "stats": arguments.statistics(call, lse2=x["lse2"], delta=None if kernel == "forward" else x["delta"]),
    }
    given |= {"forward": {"enable_fp_fusion": False}, "dq": {"ds_ptr": None}, "dkdv": {}}[kernel]
    batch, heads, length = x["q"].shape[:3]
    programs = batch * heads * -(-length // (n if kernel == "dkdv" else m))
    return lambda: KERNELS[kernel][(programs,)](**given)


def exact(task: Task, x: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """O, the gradients and the base-2 LSE in float64."""
    import torch

    q, k, v = (x[n].double().requires_grad_() for n in "qkv")
    s = q @ k.mT * task.d**-0.5
    if task.causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], device="cuda", dtype=torch.bool).triu(1), float("-inf"))
    o = s.softmax(-1) @ v
    gradients = torch.autograd.grad(o, (q, k, v), x["do"].double())
    found = dict(zip(("dq", "dk", "dv"), gradients, strict=True))
    return found | {"o": o.detach(), "lse2": s.detach().logsumexp(-1) / torch.tensor(2.0).log().item()}


def checked(task: Task) -> tuple[Task, float, str]:
    """Compile and launch one schedule on a small problem: its relative error, infinite where it failed, and what it takes."""
    import torch

    torch.zeros(1, device="cuda")  # a context, before a thread of autograd asks for one
    x = problem(task, 1, 2, SMALL)
    truth = exact(task, x)
    if task.kernel != "forward":
        x["lse2"].copy_(truth["lse2"])
        x["delta"].copy_((truth["o"] * x["do"].double()).sum(-1))
    try:
        built = call_of(task, x)()
        torch.cuda.synchronize()
    except Exception as failure:
        return task, float("inf"), f"{type(failure).__name__}: {failure}"[:90]
    error = max(float((x[n].double() - truth[n]).norm() / truth[n].norm()) for n in OUTPUTS[task.kernel])
    return task, error, f"{built.n_regs:3} registers {built.n_spills:3} spills {built.metadata.shared >> 10:3} KiB"


def sdpa_of(backend: str, task: Task, x: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """The forward of a backend of SDPA, or its whole backward."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (x[n].detach().clone().requires_grad_(task.kernel != "forward") for n in "qkv")

    def forward() -> torch.Tensor:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=task.causal)

    if task.kernel == "forward":
        return forward
    o = forward()
    return lambda: torch.autograd.grad(o, (q, k, v), x["do"], retain_graph=True)


def timed(calls: dict[str, Callable[[], Any]], rounds: int = 9) -> dict[str, float]:
    """The median time of each call, ms."""
    import torch

    evictor = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    for call in calls.values():
        call()
    marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            evictor.zero_()
            start.record()
            call()
            end.record()
            marks[name].append((start, end))
    torch.cuda.synchronize()
    return {name: statistics.median(a.elapsed_time(b) for a, b in pairs) for name, pairs in marks.items()}


def checked_in_time(tasks: list[Task], workers: int, seconds: float) -> dict[Task, tuple[float, str]]:
    """What the worker processes found in `seconds`; a compilation that is under way then is given up."""
    pool = futures.ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    waiting = [pool.submit(checked, task) for task in tasks]
    done, late = futures.wait(waiting, timeout=seconds)
    processes = list(pool._processes.values())
    pool.shutdown(wait=False, cancel_futures=True)
    if late:
        for process in processes:
            process.kill()
    return {task: (error, words) for task, error, words in (future.result() for future in done)}


def report(cell: list[Task], found: dict[Task, tuple[float, str]], length: int) -> None:
    """Time one kernel at one head dimension and mask, and print its table, the fastest first."""
    first = cell[0]
    x = problem(first, BATCH, HEADS, length)
    x["lse2"].zero_()
    calls: dict[str, Callable[[], Any]] = {}
    notes: dict[str, str] = {}
    if first.kernel != "dq":
        calls = {name: sdpa_of(f"{name}_ATTENTION", first, x) for name in ("CUDNN", "FLASH")}
    for task in cell:
        error, words = found.get(task, (float("inf"), "not compiled in time"))
        if error < LARGEST_ERROR[task.dtype]:
            calls[task.name()], notes[task.name()] = call_of(task, x), f"{words}, error {error:.1e}"
        else:
            print(f"left out: {task.kernel} D={task.d} {task.name()}: {error} {words}")
    print(f"{first.kernel} {first.dtype} D={first.d} {'causal' if first.causal else 'full'} {length} tokens")
    pairs = 2.0 * BATCH * HEADS * length**2 * first.d * (0.5 if first.causal else 1)
    for name, ms in sorted(timed(calls).items(), key=lambda item: item[1]):
        whole = first.kernel == "dkdv" and name not in notes
        flops = pairs * (WHOLE_BACKWARD if whole else PRODUCTS[first.kernel])
        print(f"  {flops / ms / 1e9:5.0f} TFLOP/s {ms:8.4f} ms  {name:28}{notes.get(name, 'whole backward' * whole)}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=tuple(LARGEST_ERROR), default="fp16")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=60, help="for compiling")
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args()
    cells = [
        [
            *(Task(kernel, d, causal, "hopper", HOPPER[name], options.dtype) for name in HOPPER if name == kernel),
            *(
                Task(kernel, d, causal, how, tile, options.dtype)
                for tile in SCHEDULES[kernel, d]
                for how in ("descriptors", "pointers")
            ),
        ]
        for kernel, d in SCHEDULES
        for causal in (False, True)
    ]
    begun = time.time()
    found = checked_in_time([task for cell in cells for task in cell], options.workers, options.seconds)
    print(f"{len(found)} of {sum(map(len, cells))} schedules compiled and compared in {time.time() - begun:.0f} s")
    for cell in cells:
        report(cell, found, options.length)
    return 0


if __name__ == "__main__":
    sys.exit(main())
