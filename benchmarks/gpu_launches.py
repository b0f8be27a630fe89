"""What a call of the bundled kernels costs the CPU, with launch plans and without, and that both give the same bits.

    python benchmarks/gpu_launches.py [--part bits|decodings|graphs|times ...]

Processor time of a call that nobody waits for: 512 tokens, 16 heads, D = 64, fp16. Each part prints as it goes; a part that fails says so
and the next one begins. Exit code 1 if any answer is no. It ends after 100 seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import torch
from launch_problems import decoding_problems, moved_copy, normal, problems

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 100.0  # seconds
_WRONG: list[str] = []


def say(*words: object) -> None:
    print(*words, flush=True)


def answer(question: str, right: bool) -> None:
    if not right:
        _WRONG.append(question)
    say("yes" if right else "NO ", question)


def same(one: Any, two: Any) -> bool:
    return all(torch.equal(x.view(torch.uint8), y.view(torch.uint8)) for x, y in zip(one, two, strict=True))


def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, **options: Any) -> tuple[Any, ...]:
    from flashverify_kernels import attention

    return with_gradients(attention(q, k, v, **options), q, k, v, do)


def with_gradients(o: torch.Tensor, *x: torch.Tensor) -> tuple[Any, ...]:
    q, k, v, do = x
    return (o.detach(), *torch.autograd.grad(o, (q, k, v), do))  # a graph that lives on binds its leaves to its stream


def bits() -> None:
    """Bits of the third call, which goes by a plan, at new addresses, against a call without plans."""
    from flashverify_kernels import plans

    for name, given, options in problems():
        with plans.ordinary_launches():
            do = torch.randn_like(step(*given, given[0].detach(), **options)[0])
            expected = step(*given, do, **options)
        for _ in range(2):
            step(*(torch.zeros_like(x, requires_grad=True) for x in given), torch.zeros_like(do), **options)
        before = len(plans._plans)
        step(*given, do, **options)
        first = step(*given, do, **options)
        answer(f"bits, {name} ({len(plans._plans) - before} more plans)", same(expected, first))
        moved = tuple(moved_copy(x) for x in given)
        answer(f"bits at other addresses, {name}", same(expected, step(*moved, do.clone(), **options)))


def decodings() -> None:
    """The same of decoding, contiguous and paged."""
    from flashverify_kernels import decode, plans

    for n, ((k, v), options) in enumerate(decoding_problems()):
        q = torch.randn(2, 4, 3, 64, device="cuda").half()
        with plans.ordinary_launches():
            expected = decode(q, k, v, return_lse=True, **options)
        for _ in range(2):
            decode(torch.zeros_like(q), k, v, return_lse=True, **options)
        moved = (moved_copy(x).detach() for x in (q, k, v))
        answer(
            f"bits of decoding {n}: {', '.join(options) or 'none'}",
            same(expected, decode(*moved, return_lse=True, **options)),
        )


def graphs() -> None:
    """CUDA graphs, other streams and compiled programs."""
    from flashverify_kernels import attention, plans

    q, k, v = normal(4, 120), normal(2, 130), normal(2, 130)
    do = torch.randn_like(q)
    with plans.ordinary_launches():
        expected = step(q, k, v, do, causal="top-left")
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            found = step(q, k, v, do, causal="top-left")
    torch.cuda.current_stream().wait_stream(side)
    answer("another stream", same(expected, found))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step(q, k, v, do, causal="top-left")
    for x in recorded:
        x.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    answer("a replayed CUDA graph", same(expected, recorded))
    with torch.no_grad():
        for x in (q, k, v):
            x.mul_(0.5)
    with plans.ordinary_launches():
        expected = step(q, k, v, do, causal="top-left")
    graph.replay()
    torch.cuda.synchronize()
    answer("a replayed CUDA graph with other values", same(expected, recorded))
    compiled = torch.compile(functools.partial(attention, causal="top-left"), fullgraph=True, backend="aot_eager")
    for n in range(3):
        answer(f"compiled, call {n}", same(expected, with_gradients(compiled(q, k, v), q, k, v, do)))


def calls() -> dict[str, Callable[[], Any]]:
    """The calls that are timed, ours and PyTorch's."""
    from flashverify_kernels import attention, attention_varlen, decode

    q, k, v = (torch.randn(1, 16, 512, 64, device="cuda").half().requires_grad_() for _ in "qkv")
    do = torch.ones_like(q)
    packed = [x.detach()[0].transpose(0, 1).contiguous().requires_grad_() for x in (q, k, v)]
    cu = torch.tensor([0, 200, 512], dtype=torch.int32, device="cuda")
    one = q.detach()[:, :, :1].contiguous()
    keys, values = k.detach(), v.detach()
    found: dict[str, Callable[[], Any]] = {}

    def add(name: str, call: Callable[[], torch.Tensor], inputs: Any, gradient: torch.Tensor) -> None:
        o = call()
        found[f"{name}, forward"] = call
        found[f"{name}, backward"] = lambda: torch.autograd.grad(o, inputs, gradient, retain_graph=True)
        found[f"{name}, both"] = lambda: torch.autograd.grad(call(), inputs, gradient)

    sdpa = torch.nn.functional.scaled_dot_product_attention
    for name, causal in (("dense", False), ("causal", True)):
        mask: Any = {"causal": "top-left"} if causal else {}
        add(f"attention {name}", lambda mask=mask: attention(q, k, v, **mask), (q, k, v), do)  # type: ignore[misc]
        add(f"SDPA {name}", lambda causal=causal: sdpa(q, k, v, is_causal=causal), (q, k, v), do)  # type: ignore[misc]

    def varlen() -> torch.Tensor:
        return attention_varlen(*packed, cu, cu, max_q=512, max_k=512)[0]

    add("attention_varlen", varlen, packed, torch.ones_like(packed[0]))
    queries = q.detach()
    for name, each in (("attention", attention), ("SDPA", sdpa)):
        found[f"{name} dense, not differentiated"] = lambda each=each: each(queries, keys, values)  # type: ignore[misc]
    found["decode"] = lambda: decode(one, keys, values)
    return found


def processor_time(call: Callable[[], Any], count: int = 100) -> float:
    """Microseconds of processor time a call, of this process; the least of three."""
    for _ in range(5):
        call()
    best = float("inf")
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.process_time()
        for _ in range(count):
            call()
        best = min(best, time.process_time() - start)
    torch.cuda.synchronize()
    return 1e6 * best / count


def times() -> None:
    from flashverify_kernels import plans

    say(f"{'us of processor time a call':40}{'plans':>8}{'none':>8}")
    for name, call in calls().items():
        with_plans = processor_time(call)
        with plans.ordinary_launches() if not name.startswith("SDPA") else contextlib.nullcontext():
            say(f"{name:40}{with_plans:8.1f}{processor_time(call, 30):8.1f}")


PARTS = {"times": times, "bits": bits, "decodings": decodings, "graphs": graphs}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    for name in options.part or PARTS:
        start = time.monotonic()
        say(f"== {name}")
        try:
            PARTS[name]()
        except Exception:
            _WRONG.append(name)
            traceback.print_exc(file=sys.stdout)
        say(f"== {name}: {time.monotonic() - start:.1f} s")
    say("\n  ".join((f"{len(_WRONG)} answered by no", *_WRONG)))
    return 1 if _WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
