"""That a planned launch hands NVIDIA's driver what an ordinary one does, byte for byte, on a machine without a GPU.

    python benchmarks/call_arguments.py

Kernels are compiled and launched by Triton's own code over a library that launches nothing (`pretended_driver.py`) and shows what it is
given: the blocks, threads and shared memory of a launch, its stream, and the bytes of every argument. A problem is called three times
without plans and three times with, forward and backward, each at other addresses, and each pair must agree: constants by their bytes,
addresses by the tensor that lies there, descriptors by all that was asked of them. Exit code 1 if any does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from pretended_driver import pretend

_WATCHER = ctypes.CFUNCTYPE(
    None, *[ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p]
)
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u1": 1, "u8": 1, "u32": 4, "u64": 8, "fp32": 4, "fp64": 8}
_MAP = 128
PROBLEMS: dict[str, dict[str, Any]] = {
    "dense": {},
    "causal": {"causal": "top-left"},
    "bottom-right window": {"causal": "bottom-right", "window": (40, 0)},
    "softcap": {"softcap": 20.0, "scale": 0.3},
    "lengths": {"key_lengths": torch.tensor([61, 100], dtype=torch.int32)},
    "slopes": {"alibi_slopes": torch.ones(4), "causal": "bottom-right"},
    "layout": {"layout": "bshd"},
}


class Seen:
    """The launches of a call, as the driver is told of them."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self._types: dict[int, list[str]] = {}
        self.watcher = _WATCHER(self._watch)

    def _watch(self, function: int, blocks: int, threads: int, shared: int, stream: int, arguments: int) -> None:
        if function not in self._types:
            self._types[function] = _types(function)
        found: list[Any] = [function, blocks, threads, shared, stream]
        for n, kind in enumerate(self._types[function]):
            place = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))[n]
            size = _MAP if kind == "map" else 8 if kind.startswith("*") else _BYTES[kind]
            data = ctypes.string_at(place or 0, size)
            found.append((kind, int.from_bytes(data[:8], "little"), data[8:]))
        self.launches.append(tuple(found))


def _types(function: int) -> list[str]:
    """Of the arguments that reach a kernel."""
    (compiled,) = (
        x for x in gc.get_objects() if type(x).__name__ == "CompiledKernel" and getattr(x, "function", None) == function
    )
    found: list[str] = []

    def add(kind: Any) -> None:
        if isinstance(kind, tuple):
            for each in kind:
                add(each)
        elif kind.startswith("tensordesc"):
            axes = kind.partition("[")[2].partition("]")[0].count(",") + 1
            found.extend(["map", *["i32"] * axes, *["i64"] * axes])
        elif kind != "constexpr":
            found.append(kind)

    for kind in compiled.src.signature.values():
        add(kind)
    return found


def called(seen: Seen, options: dict[str, Any], kept: list[Any]) -> list[tuple[Any, ...]]:
    """A forward and a backward of new tensors: its launches, with the names of tensors in place of their addresses."""
    from flashverify_kernels.launch import backward, forward
    from flashverify_kernels.options import Options

    choice = Options(**options)
    shapes = {"q": (2, 4, 120, 64), "k": (2, 2, 130, 64), "v": (2, 2, 130, 64)}
    order = (0, 2, 1, 3) if choice.layout == "bshd" else (0, 1, 2, 3)
    given = {name: torch.zeros([s[a] for a in order], dtype=torch.float16) for name, s in shapes.items()}
    do = torch.zeros_like(given["q"])
    seen.launches.clear()
    o, lse2 = forward(*given.values(), choice)
    gradients = backward(do, *given.values(), o, lse2, choice)
    tensors = {**given, "do": do, "o": o, "lse2": lse2, **gradients._asdict(), **options}
    names = {x.data_ptr(): name for name, x in tensors.items() if isinstance(x, torch.Tensor)}
    kept.append(tensors)  # so that the next ones lie elsewhere
    return [
        tuple((kind, names.get(first, first), rest) for kind, first, rest in launch[5:]) + launch[:5]
        for launch in seen.launches
    ]


def main() -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        library = pretend(Path(folder))
        torch.cuda.device = lambda *_: contextlib.nullcontext()  # type: ignore[assignment, misc]
        from flashverify_kernels import plans, replay

        seen = Seen()
        library.pretended_watch(seen.watcher)
        for name, options in PROBLEMS.items():
            kept: list[Any] = []
            with plans.ordinary_launches():
                expected = [called(seen, options, kept) for _ in range(3)]
            found = [called(seen, options, kept) for _ in range(4)][1:]
            same = found == expected
            wrong += not same
            answer = "yes" if same else "NO "
            print(
                answer,
                f"{name}: {len(expected[0])} launches, {[len(x) - 5 for x in expected[0]]} arguments",
                flush=True,
            )
        plans_made, replays = len(plans._plans), replay.calls.cache_info().misses
        library.pretended_watch(_WATCHER())
    print(f"{plans_made} plans, {replays} calls by them at new addresses, {wrong} problems whose launches differ")
    return 1 if wrong or replays < 6 * len(PROBLEMS) else 0


if __name__ == "__main__":
    sys.exit(main())
