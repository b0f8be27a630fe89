"""What the bundled kernels choose by default on a Hopper GPU, and that every way there gives the same bits.

    python benchmarks/gpu_defaults.py [--cases N] [--part calls|views|programs|forms ...]

Calls that the kernels for Hopper GPUs take, and calls that they do not: which way each goes, and whether its bits are those of the
configuration named in so many words. Views of a sequence and of a head, CUDA graphs and compiled programs have the bits of the whole
and of eager calls. The form that the subject `bundled` declares of drawn cases has the tile of keys of their launches. One line a
question as it is answered; exit code 1 if any answer is no. It ends after 120 seconds.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import sys
import time
from dataclasses import replace
from typing import Any

LIMIT = 120.0  # seconds

STARTED = time.perf_counter()
GENERAL = {"descriptors": False, "hopper": False}


class Answers(dict[str, bool]):
    """Answers by question; each is printed as it comes."""

    def __setitem__(self, question: str, answer: bool) -> None:
        super().__setitem__(question, answer)
        print("yes" if answer else "NO ", f"{time.perf_counter() - STARTED:5.1f} s", question, flush=True)


def tensors(d: int, dtype: str, *, heads: int = 4, kv_heads: int = 2, gap: int = 0, offset: int = 0) -> tuple[Any, ...]:
    """q, k, v and dO `[2, H, S, d]` with rows `gap` elements apart and `offset` elements behind a multiple of 256 bytes."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)

    def normal(h: int, s: int) -> torch.Tensor:
        memory = torch.zeros(2 * h * s * (d + gap) + offset, device="cuda", dtype=getattr(torch, dtype))
        x = memory[offset:].view(2, h, s, d + gap)[..., :d]
        return x.copy_(torch.randn(2, h, s, d, generator=generator, device="cuda"))

    return normal(heads, 300), normal(kv_heads, 517), normal(kv_heads, 517), normal(heads, 300)


def whole(given: tuple[Any, ...], config: Any = None, **options: Any) -> tuple[tuple[Any, ...], list[str]]:
    """O, LSE, dQ, dK and dV, and the kinds of kernels for Hopper GPUs that ran."""
    from flashverify_kernels import Options, backward, forward, hopper
    from flashverify_kernels.plans import ordinary_launches

    q, k, v, do = given
    taken: list[str] = []
    takes = hopper.takes
    hopper.takes = lambda call, options, kind, x: takes(call, options, kind, x) and not taken.append(kind)  # type: ignore[assignment, func-returns-value]
    try:
        chosen = Options(config=config, **options)
        with ordinary_launches():  # a plan asks no more who takes the call
            found = forward(q, k, v, chosen)
            gradients = backward(do, q, k, v, found.o, found.lse2, chosen)
    finally:
        hopper.takes = takes
    return (found.o, found.lse2, gradients.dq, gradients.dk, gradients.dv), taken


def named(d: int, dtype: str, mask: str, capability: tuple[int, int] | None, **ways: bool) -> Any:
    """The configurations in so many words."""
    import torch

    from flashverify_kernels import Configs, launch_config

    dims: dict[str, Any] = {"d": d, "dv": d, "dtype": getattr(torch, dtype), "mask": mask, "sq": 300}
    kinds: tuple[Any, ...] = ("forward", "dq", "dkdv")
    return Configs(**{kind: replace(launch_config(kind, capability=capability, **dims), **ways) for kind in kinds})


def same(one: Any, two: Any) -> bool:
    import torch

    return all(torch.equal(x, y) for x, y in zip(one, two, strict=True))


def calls() -> Answers:
    """Calls of both kinds against configurations in so many words."""
    import torch

    found = Answers()
    for d, dtype, causal in (
        (d, t, c) for d in (64, 128) for t in ("float16", "bfloat16") for c in (None, "bottom-right")
    ):
        mask, words = "causal" if causal else "none", f"D={d} {dtype} {causal}"
        given = tensors(d, dtype)
        default, taken = whole(given, causal=causal)
        found[f"{words}: taken"] = taken == (["forward", "dq", "dkdv"] if d == 128 else ["forward", "dkdv"])
        general, none = whole(given, named(d, dtype, mask, (9, 0), **GENERAL), causal=causal)
        found[f"{words}: bits of pointers"] = not none and same(default, general)
        for name, x in {
            "an address that is not aligned": tensors(d, dtype, offset=1),
            "rows that are not aligned": tensors(d, dtype, gap=3),
            "a broadcast head": (given[0], *(y[:, :1].expand(-1, 2, -1, -1) for y in given[1:3]), given[3]),
        }.items():
            default, taken = whole(x, causal=causal)
            usual, _ = whole(x, named(d, dtype, mask, None), causal=causal)
            found[f"{words}, {name}: the usual configuration"] = not taken and same(default, usual)
        sink = torch.zeros(4, device="cuda")
        default, taken = whole(given, causal=causal, sink=sink)
        usual, _ = whole(given, named(d, dtype, mask, None), causal=causal, sink=sink)
        found[f"{words}, a sink: the usual configuration"] = not taken and same(default, usual)
    return found


def views() -> Answers:
    """A sequence and a head of the whole, as views."""
    found = Answers()
    for d, gap in ((64, 0), (128, 0), (128, 3), (128, 8)):
        given = tensors(d, "bfloat16", gap=gap)
        outputs, _ = whole(given, causal="top-left")
        for n in (0, 1):
            part, _ = whole(tuple(x[n : n + 1] for x in given), causal="top-left")
            found[f"D={d} gap={gap}: sequence {n} alone"] = same((x[n : n + 1] for x in outputs), part)
        q, k, v, do = given
        part, _ = whole((q[:, 2:], k[:, 1:], v[:, 1:], do[:, 2:]), causal="top-left")
        heads = (*(x[:, 2:] for x in outputs[:3]), *(x[:, 1:] for x in outputs[3:]))
        found[f"D={d} gap={gap}: the last head alone"] = same(heads, part)
    return found


def programs() -> Answers:
    """CUDA graphs and compiled programs against eager calls."""
    import torch

    from flashverify_kernels import attention

    def step(q: Any, k: Any, v: Any, do: Any) -> tuple[Any, ...]:
        return with_gradients(attention(q, k, v, causal="top-left"), q, k, v, do)

    def with_gradients(o: Any, *x: Any) -> tuple[Any, ...]:
        q, k, v, do = x
        return (
            o.detach(),
            *torch.autograd.grad(o, (q, k, v), do),
        )  # a graph that lives on binds its leaves to its stream

    compiled = torch.compile(functools.partial(attention, causal="top-left"), fullgraph=True, backend="aot_eager")
    found = Answers()
    for d, gap in ((64, 0), (128, 0), (128, 3)):
        given = tuple(x.detach().requires_grad_(n < 3) for n, x in enumerate(tensors(d, "bfloat16", gap=gap)))
        eager = step(*given)
        dense = (
            *given[:3],
            given[3].contiguous(),
        )  # as torch.compile gives dO on; how rows lie decides the order of the sum of delta
        found[f"D={d} gap={gap}: compiled"] = same(step(*dense), with_gradients(compiled(*given[:3]), *given))
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step(*given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded = step(*given)
        for x in recorded:
            x.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        found[f"D={d} gap={gap}: replayed"] = same(eager, recorded)
    return found


def forms(count: int) -> Answers:
    """The tile of keys that the subject declares against the one that is launched."""
    from flashverify.campaign.worker.search import draw
    from flashverify.case.case import Values
    from flashverify.case.memory.materialize import materialize
    from flashverify.case.space.strategies import GPU, cases
    from flashverify.subjects.bundled import BUNDLED
    from flashverify_kernels.runtime import compute_capability
    from flashverify_kernels.validation import check_call

    wrong, drawn, wide = [], 0, 0
    for each in draw(cases(BUNDLED.supports, profile=GPU), count, 0):
        width = 64 << each.values.seed % 2
        plain = replace(each, values=Values(seed=each.values.seed))  # without the edits of single values
        case = replace(plain, dim_qk=width, dim_v=width, dtype=("fp16", "bf16")[drawn % 2], precision="ieee")
        if BUNDLED.supports.refusal(case) is not None or case.seq_q * case.seq_k > 2**22:
            continue
        drawn += 1
        problem, _ = materialize(case, "cuda")
        q, k, v = (BUNDLED._view(case, x) for x in (problem.q, problem.k, problem.v))
        call = check_call(q, k, v, BUNDLED._options(problem), capability=compute_capability(q))
        wide += call.configs["forward"].block_n == 128
        if call.configs["forward"].block_n != BUNDLED.form(case).block_n:
            wrong.append(str(case))
    print(f"{drawn} drawn cases, {wide} in tiles of 128 keys", *wrong[:5], sep="\n  ", flush=True)
    found = Answers()
    found["the declared tiles of drawn cases"] = not wrong and drawn > 0
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=150)
    parts = {"views": views, "forms": lambda: forms(options.cases), "programs": programs, "calls": calls}
    parser.add_argument("--part", choices=parts, action="append")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    found: dict[str, bool] = {}
    for name in options.part or parts:
        found |= parts[name]()
    print(f"{len(found)} questions, {list(found.values()).count(False)} answered by no")
    return 1 if False in found.values() else 0


if __name__ == "__main__":
    sys.exit(main())
