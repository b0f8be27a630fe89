"""One process: `python -m accuracy_report.measuring SPEC FILE --seconds N` draws cases of a kernel and measures the errors of all elements.

Each case comes twice where the kernel takes it so: as it is drawn, with hard values, scales and strides, and with usual ones. The file is
written anew every few seconds, so that a process that dies leaves what it had.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from accuracy_report.record import Kernel
from flashverify.campaign.store.files import write_atomic
from flashverify.campaign.toolkit import BUNDLED, load_toolkit
from flashverify.campaign.worker.search import draw
from flashverify.case.sections import Storage, Values
from flashverify.case.text import format_case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

_DRAWN = 32
_WRITTEN = 5.0


def usual(case: Case) -> Case:
    """The case with standard normal values, the usual scale and plain storage."""
    return replace(
        case, scale=None, values=Values(seed=case.values.seed), storage=Storage(page_size=case.storage.page_size)
    )


def cases(toolkit: Any, subject: Subject, device: str, seed: int) -> Iterator[tuple[str, Case]]:
    """Drawn cases without end, each followed by its usual one, with their group."""
    strategy, seen = toolkit.strategy(subject, device), set[str]()
    while True:
        drawn = draw(strategy, _DRAWN, seed)
        for case in drawn:
            for group, each in (("hard", case), ("usual", usual(case))):
                text = format_case(each)
                if text not in seen and toolkit.refusal(subject, each) is None:
                    seen.add(text)
                    yield group, each
        if not drawn:
            return
        seed += 1


def spacing(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Units in the last place of a dtype at exact values, float64."""
    import torch

    info = torch.finfo(dtype)
    exponents = np.floor(np.log2(np.maximum(np.abs(values), info.smallest_normal)))
    return np.exp2(exponents) * info.eps


def add_case(kernel: Kernel, subject: Subject, group: str, case: Case) -> None:
    """Measure every element of one case."""
    from flashverify.case.memory.host import on_cpu
    from flashverify.case.memory.materialize import materialize
    from flashverify.checks.answers import Rule, answers_of
    from flashverify.checks.passes.execution import execute

    text = format_case(case)
    problem, arena = materialize(case, subject.device())
    outputs = execute(subject, problem).outputs
    answers = answers_of(subject, on_cpu(problem))
    dtype = case.dtype if case.precision == "ieee" else f"{case.dtype} {case.precision}"
    for name in answers.keys() & outputs.keys():
        answer, tensor = answers[name], outputs[name].cpu()
        got, exact = tensor.double().numpy(), answer.expected.numpy()
        bound, rule = answer.bound.numpy(), answer.rule.numpy()
        finite = np.isfinite(got)
        asked = (rule != Rule.ANY) & (bound > 0) & np.isfinite(bound) & np.isfinite(exact)
        wrong = asked & ~finite & (rule == Rule.BOUND)
        judged = asked & finite
        if not (judged | wrong).any():
            continue
        errors = np.abs(got[judged] - exact[judged])
        row = kernel.row(dtype, name, group)
        row.cases += 1
        ratios = errors / bound[judged]
        row.ratios.add(ratios, text)
        row.ulps.add(errors / spacing(exact[judged], tensor.dtype), text)
        outside = int(wrong.sum()) + int((ratios > 1).sum())
        row.outside += outside
        row.outside_case = row.outside_case or (text if outside else "")
    del arena  # the memory of the problem, alive until here
    kernel.cases += 1


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    end, written = time.monotonic() + options.seconds, time.monotonic()
    toolkit = load_toolkit(BUNDLED)
    kernel = Kernel(options.spec, "")
    with toolkit.open(options.device, plain=False, numerics="ieee"):
        subject = toolkit.load(options.spec)
        kernel.evidence = subject.evidence()
        for group, case in cases(toolkit, subject, options.device, options.seed):
            try:
                add_case(kernel, subject, group, case)
            except Exception as error:  # whatever the kernel raises
                kernel.raised += 1
                kernel.raised_first = kernel.raised_first or f"{type(error).__name__}: {error}".splitlines()[0][:300]
            now = time.monotonic()
            if now - written > _WRITTEN:
                write_atomic(options.file, msgspec.json.encode(kernel))
                written = now
            if now > end and kernel.cases + kernel.raised > 1:
                break
    write_atomic(options.file, msgspec.json.encode(kernel))


if __name__ == "__main__":
    main()
