"""One pass of a subject for a profiler: what is given as JSON runs twice, and the second time is marked."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from flashverify.bench.records import Workload


class _Given(msgspec.Struct):
    subject: str
    workload: Workload
    tutorial: str


def main() -> None:
    """Runs the pass that the first argument names."""
    import torch

    from flashverify.bench.problems import problem_of
    from flashverify.bench.run import call_of
    from flashverify.bench.session import subject_of

    given = msgspec.json.decode(sys.argv[1], type=_Given)
    subject = subject_of(given.subject, "cuda", given.tutorial)
    call = call_of(subject, problem_of(given.workload, "cuda"), given.workload.direction)
    call()
    torch.cuda.synchronize()
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    runtime.cudaProfilerStart()
    call()
    torch.cuda.synchronize()
    runtime.cudaProfilerStop()


if __name__ == "__main__":
    main()
