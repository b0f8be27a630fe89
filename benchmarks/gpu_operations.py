"""How many operations a GPU would be given to compare one pass with the oracle, and how often it would be waited for; counted on a CPU.

    python benchmarks/gpu_operations.py [--subject bundled] [--cases 40] [--seed 3] [--file FILE] [--rows 20]

Each case is run in the interpreter, then compared (`check_accuracy`) with tensors that say they lie on a GPU, so that what is asked of a
CPU alone is not asked. Views are not counted: they are no work of the GPU. A wait is an operation whose answer the host needs. Two states
of the code are compared by their counts: `PYTHONPATH=OLD:OLD/kernels:OLD/oracles python benchmarks/gpu_operations.py --file CASES` counts
the checkout OLD over the same cases, a text a line.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from operations import asked_by

_VIEWS = frozenset(
    [
        "alias",
        "as_strided",
        "detach",
        "expand",
        "lift_fresh",
        "permute",
        "reshape",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unsqueeze",
        "view",
        "_unsafe_view",
    ]
)
_WAITS = frozenset(("item", "is_nonzero", "_local_scalar_dense", "nonzero", "equal"))


def counted(subject: Any, cases: tuple[Any, ...]) -> tuple[Counter[str], Counter[str], int]:
    """Operations by part and waits by function, and how many cases had something to compare."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from flashverify.case.memory.materialize import materialize
    from flashverify.checks.accuracy import check_accuracy
    from flashverify.checks.passes.execution import execute

    parts, waits, compared, tolist = Counter[str](), Counter[str](), 0, torch.Tensor.tolist

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = function.overloadpacket.__name__
            if name not in _VIEWS:
                part, place = asked_by(sys._getframe(1))
                parts[part] += 1
                waits.update([place] * (name in _WAITS))
            return function(*args, **(kwargs or {}))

    def waiting(tensor: torch.Tensor) -> Any:
        waits[asked_by(sys._getframe(1))[1]] += 1
        return tolist(tensor)

    for case in cases:
        if 0 in (case.batch, case.seq_q, case.seq_k):
            continue
        problem, _ = materialize(case, "cpu")
        execution, on_gpu = execute(subject, problem), property(lambda _: True)
        compared += 1
        with (
            mock.patch.object(torch.Tensor, "is_cuda", on_gpu),
            mock.patch.object(torch.Tensor, "tolist", waiting),
            mock.patch("flashverify.checks.accuracy._CPU_WORK", -1),  # where a small case would go to the host
            Counting(),  # type: ignore[no-untyped-call]
        ):
            check_accuracy(subject, execution)
    return parts, waits, compared


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--file", type=Path, help="cases to count, a text a line, in place of drawn ones")
    parser.add_argument("--rows", type=int, default=20, help="functions that are printed")
    options = parser.parse_args()
    os.environ["TRITON_INTERPRET"] = "1"
    from flashverify import parse_case
    from flashverify.campaign.toolkit import bundled
    from flashverify.campaign.worker.search import draw

    with bundled.open("cpu", plain=False):  # type: ignore[call-arg]
        subject = bundled.load(options.subject)
        if options.file:
            texts = options.file.read_text(encoding="utf-8").splitlines()
            cases = tuple(parse_case(text) for text in texts)[: options.cases]
        else:
            cases = draw(bundled.strategy(subject, "cpu"), options.cases, options.seed)
        parts, waits, compared = counted(subject, cases)
    print(
        f"{parts.total() / compared:.0f} operations and {waits.total() / compared:.1f} waits a case, over {compared} cases"
    )
    for title, found in (("operations", parts), ("waits", waits)):
        print(title)
        for name, number in found.most_common(options.rows):
            print(f"  {number / compared:8.1f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
