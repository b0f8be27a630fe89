"""How many torch operations a judged case takes, by the part of the harness that asks for them.

    python benchmarks/operations.py [--subject bundled] [--cases 150] [--seed 3] [--rows 40] [--device cpu] [--json FILE]

Cases are drawn as a search draws them and judged by every check of a search. An operation is one call that torch dispatches: an ATen
operator, views and each conversion to numpy among them. It belongs to the innermost function of the harness or of the oracles on the stack; operations of the subject
and of Triton's interpreter are a part of their own. Two states of the code are compared by their counts, which no other load changes:
`PYTHONPATH=OLD:OLD/kernels:OLD/oracles python benchmarks/operations.py` counts the checkout OLD.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from flashverify.campaign.toolkit import Toolkit

_SUBJECT = ("kernels", "subjects", "interpreter", "launching")
"""Folders whose operations are the subject's, whoever is above them."""
_OF_CONVERSIONS = ("resolve_conj", "resolve_neg")
"""What a conversion to numpy asks beside `detach`, under a mode alone."""


@cache
def place(code: CodeType) -> tuple[str, str] | None:
    """(part, function) of the code of a frame; None outside the project."""
    path = Path(code.co_filename).parts
    for package, prefix in (
        ("flashverify_oracles", "oracles"),
        ("flashverify_kernels", "kernels"),
        ("flashverify", ""),
    ):
        if package in path:
            inside = path[len(path) - path[::-1].index(package) :]
            file = "/".join(filter(None, (prefix, *inside)))
            return (prefix or (inside[0] if len(inside) > 1 else "flashverify")), f"{file}:{code.co_qualname}"
    return None


def asked_by(frame: FrameType | None) -> tuple[str, str]:
    """(part, function) that an operation belongs to, of the frame that asks for it."""
    innermost = None
    while frame is not None:
        found = place(frame.f_code)
        if found is not None:
            if found[0] in _SUBJECT:
                return "subject", found[1]
            innermost = innermost or found
        frame = frame.f_back
    return innermost or ("elsewhere", "elsewhere")


def counted(toolkit: Toolkit, subject: Any, cases: tuple[Any, ...]) -> dict[str, Counter[Any]]:
    """Operations by part, by function, and by function and operator."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: dict[str, Counter[Any]] = {"parts": Counter(), "functions": Counter(), "operators": Counter()}

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            operator = function.overloadpacket.__name__
            if operator not in _OF_CONVERSIONS:
                part, name = asked_by(sys._getframe(1))
                found["parts"][part] += 1
                if part != "subject":
                    found["functions"][name] += 1
                    found["operators"][f"{name} {operator}"] += 1
            return function(*args, **(kwargs or {}))

    with Counting():  # type: ignore[no-untyped-call]
        for case in cases:
            toolkit.judge(subject, case, "fuzz")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--rows", type=int, default=40, help="functions that are printed")
    parser.add_argument("--operators", action="store_true", help="print operators of functions instead")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    from flashverify.campaign.toolkit import bundled
    from flashverify.campaign.worker.search import draw

    with bundled.open(options.device, plain=False):  # type: ignore[call-arg]
        import torch

        torch.set_num_threads(1)
        subject = bundled.load(options.subject)
        cases = draw(bundled.strategy(subject, options.device), options.cases, options.seed)
        found = counted(bundled, subject, cases)
    judging = sum(n for part, n in found["parts"].items() if part != "subject")
    print(f"{judging / len(cases):.0f} operations a case to judge {len(cases)} cases, without those of the subject")
    for title, rows in (("parts", None), ("operators" if options.operators else "functions", options.rows)):
        for name, number in found[title].most_common(rows):
            print(f"  {number / len(cases):8.1f}  {name}")
    if options.json:
        figures = {"cases": len(cases)} | {title: dict(found[title]) for title in ("parts", "functions", "operators")}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
