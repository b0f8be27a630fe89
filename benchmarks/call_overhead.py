"""What a planned call of the bundled attention costs the CPU, split by part, on a machine without a GPU.

    python benchmarks/call_overhead.py [--causal] [--rounds 40] [--whole]

Kernels are compiled and launched by Triton's own code over a library that launches nothing (`pretended_driver.py`), on tensors of the
CPU: Python, autograd and Triton are all there; NVIDIA's driver, the allocator of CUDA and the thread that autograd keeps for a GPU are
not. Microseconds of processor time a call, the least of rounds that take turns. A part is timed alone, where it finds the caches warm:
the rest of a call is what is left of the whole, and holds what the parts cost more when they are called one after the other. PyTorch's
own attention, whose arithmetic is part of what it takes, has tensors of a few elements.
"""

from __future__ import annotations

# ruff: noqa: D102
import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pretended_driver import pretend

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (1, 2, 128, 64)  # of tensors that are allocated in as few steps as those of a GPU are from its cache
_AT_ONCE = 40
_NEEDS = (True, True, True, False, False, False)


def least(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Microseconds of processor time of each call: the least of the rounds, in each of which all take their turn."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            start = time.process_time()
            for _ in range(_AT_ONCE):
                call()
            best[name] = min(best[name], (time.process_time() - start) / _AT_ONCE * 1e6)
    return best


def wholes(inputs: tuple[torch.Tensor, ...], do: torch.Tensor, options: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Calls as users make them."""
    from flashverify_kernels import attention

    q, k, v = inputs
    apart = tuple(x.detach() for x in inputs)
    o = attention(q, k, v, **options)
    few = tuple(torch.zeros(1, 1, 8, 16).requires_grad_() for _ in "qkv")
    sdpa = torch.nn.functional.scaled_dot_product_attention
    plain = sdpa(*few)
    ones = torch.ones_like(plain)

    def into_leaves(output: torch.Tensor, gradient: torch.Tensor, leaves: tuple[torch.Tensor, ...]) -> None:
        for x in leaves:
            x.grad = None
        output.backward(gradient, retain_graph=True)

    def step() -> None:
        torch.autograd.grad(attention(q, k, v, **options), inputs, do)

    return {
        "forward": lambda: attention(q, k, v, **options),
        "forward, not differentiated": lambda: attention(*apart, **options),
        "backward, torch.autograd.grad": lambda: torch.autograd.grad(o, inputs, do, retain_graph=True),
        "backward, .backward()": lambda: into_leaves(o, do, inputs),
        "both": step,
        "SDPA on the CPU, forward": lambda: sdpa(*few),
        "SDPA on the CPU, torch.autograd.grad": lambda: torch.autograd.grad(plain, few, ones, retain_graph=True),
    }


class Nothing(torch.autograd.Function):
    """A node of autograd that saves what attention saves and computes nothing; its gradients are new tensors."""

    @staticmethod
    def forward(ctx: Any, lse: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        o = torch.empty_like(inputs[0])
        ctx.save_for_backward(*inputs, o, lse)
        ctx.set_materialize_grads(False)
        return o

    @staticmethod
    def backward(ctx: Any, _do: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, _o, _lse = ctx.saved_tensors
        return None, torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def parts(inputs: tuple[torch.Tensor, ...], do: torch.Tensor, options: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """What calls consist of, by `direction: part`."""
    from flashverify_kernels import Options, plans, replay
    from flashverify_kernels.launch import backward, forward

    given = [x.detach() for x in inputs]
    choice = Options.of(options)
    o, lse2 = forward(*given, choice)
    apply: Any = super(torch.autograd.Function, Nothing).apply
    empty = apply(lse2, *inputs)
    found: dict[str, Callable[[], Any]] = {
        "forward: autograd of torch": lambda: apply(lse2, *inputs),
        "backward: autograd of torch": lambda: torch.autograd.grad(empty, inputs, do, retain_graph=True),
    }
    others = plans.others_of(_NEEDS)
    backward(do, *given, o, lse2, choice, needs=_NEEDS)
    for direction, tensors, more in (("forward", given, None), ("backward", [do, *given, o, lse2], others)):
        short = plans._short(direction, choice, list(tensors), more)
        ((alike, plan), *_) = plans._recent[short]
        makers = [make for make in plan.outputs if make is not None]
        outputs = [make() for make in makers]
        places = [x.data_ptr() for x in (*tensors, *outputs)]
        launches = replay.calls(plan, len(tensors), 0, *places)
        assert launches is not None

        def key(direction: str = direction, tensors: Any = tensors, more: Any = more, alike: Any = alike) -> None:
            plans._watched()
            plans._recent.get(plans._short(direction, choice, tensors, more))
            alike(*tensors)
            plans._device(tensors[0])

        def arguments(tensors: Any = tensors, outputs: Any = outputs, plan: Any = plan) -> None:
            here = [x.data_ptr() for x in (*tensors, *outputs)]
            replay.calls(plan, len(tensors), 0, *here)

        def launch(launches: Any = launches) -> None:
            for function, values in launches:
                function(*values)

        found |= {
            f"{direction}: whose plan": key,
            f"{direction}: outputs": lambda makers=makers: [make() for make in makers],  # type: ignore[misc]
            f"{direction}: arguments": arguments,
            f"{direction}: launches": launch,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--whole", action="store_true", help="no parts")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    options: dict[str, Any] = {"causal": "top-left"} if chosen.causal else {}
    with tempfile.TemporaryDirectory() as folder:
        pretend(Path(folder))
        torch.cuda.device = lambda *_: contextlib.nullcontext()  # type: ignore[assignment, misc]
        inputs = tuple(torch.zeros(SHAPE, dtype=torch.float16).requires_grad_() for _ in "qkv")
        do = torch.zeros(SHAPE, dtype=torch.float16)
        calls = wholes(inputs, do, options)
        for call in calls.values():
            for _ in range(3):
                call()
        calls |= {} if chosen.whole else parts(inputs, do, options)
        found = least(calls, chosen.rounds)
    if not chosen.whole:
        for direction, whole in (("forward", "forward"), ("backward", "backward, torch.autograd.grad")):
            each = [t for name, t in found.items() if name.startswith(f"{direction}: ")]
            found[f"{direction}: the rest"] = found[whole] - sum(each)
    for name, t in found.items():
        print(f"{name:40}{t:8.1f}")


if __name__ == "__main__":
    main()
