"""How often the diagnosis of a planted defect names the semantics that its entry in the bank declares.

    TRITON_INTERPRET=1 python benchmarks/diagnosis_score.py [--defects PATH] [--only NAME]... [--subject NAME] [--shrink SECONDS]
                                                            [--seconds SECONDS] [--json FILE]

For each mutant of the bank, or of the file or folder PATH: the first drawn case that shows it, made smaller for a few seconds, then diagnosed. `right`: the declared name alone;
`among`: one of several that the cases tried cannot tell apart; `unnamed`: nothing named; `wrong`: another name, or any name where the
entry declares none; `quiet`: no name where none is declared; `not found`: no drawn case showed it. Exit code 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TRITON_INTERPRET", "1")

import msgspec
import torch
from planted import defects_of, plant

from flashverify.campaign.shrink.shrinker import shrink
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.campaign.worker.search import draw
from flashverify.case.text import parse_case
from flashverify.diagnosis.diagnose import diagnose
from flashverify.judge.record import Diagnosis
from flashverify.subjects import load_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.judge.verdict import Verdict
    from flashverify.mutants import Mutant

CASES, BATCHES, ATTEMPTS = 250, 4, 5
_ABOUT_VALUES = ("accuracy", "nonfinite", "padding")


class Score(msgspec.Struct):
    """One mutant."""

    name: str
    declared: str
    outcome: str
    case: str = ""
    failure: str = ""
    diagnosis: Diagnosis = Diagnosis()
    seconds: float = 0.0


@cache
def batch(subject: str, number: int) -> tuple[Case, ...]:
    """Drawn cases of a subject."""
    return tuple(draw(toolkit.strategy(load_subject(subject), "cpu"), CASES, number * ATTEMPTS))


def concerned(mutant: Mutant, spec: str) -> Iterator[Case]:
    """Cases that can show the defect."""
    drawn = chain.from_iterable(batch(mutant.subject or spec, number) for number in range(BATCHES))
    concerns = getattr(mutant, "concerns", None)
    return drawn if concerns is None else filter(concerns, drawn)


def failure(mutant: Mutant, subject: Any, case: Case) -> Verdict | None:
    """The first failing verdict that counts as finding the mutant, of values where there is one."""
    found = [
        v for v in toolkit.judge(subject, case, "fuzz").failures if not mutant.outputs or v.output in mutant.outputs
    ]
    return next((v for v in found if v.check in _ABOUT_VALUES), found[0] if found else None)


def smaller(subject: Any, case: Case, verdict: Verdict, seconds: float) -> tuple[Case, Verdict]:
    """The case made smaller while it fails alike."""
    end = time.process_time() + seconds
    key, steps = verdict.key(subject.name, case.dtype), shrink(case)
    candidate = next(steps, None)
    while candidate is not None and time.process_time() < end:
        failures = toolkit.judge(subject, candidate, f"only:{verdict.check}").failures
        found = next((v for v in failures if v.key(subject.name, candidate.dtype) == key), None)
        if found is not None:
            case, verdict = candidate, found
        try:
            candidate = steps.send(found is not None)
        except StopIteration:
            break
    return case, verdict


def score(mutant: Mutant, folder: Path, options: argparse.Namespace) -> Score:
    """Find, shrink, diagnose, compare."""
    spec = plant(mutant, folder)
    subject = toolkit.load(spec)
    for case in concerned(mutant, spec):
        verdict = failure(mutant, subject, case)
        if verdict is not None:
            break
    else:
        return Score(mutant.name, mutant.semantics, "not found")
    if verdict.case:  # a problem that a check made is wrong by itself
        case = parse_case(verdict.case)
    case, verdict = smaller(subject, case, verdict, options.shrink)
    begun = time.process_time()
    diagnosis = diagnose(subject, case, verdict, seconds=options.seconds)
    taken = time.process_time() - begun
    return Score(
        mutant.name,
        mutant.semantics,
        outcome(mutant.semantics, diagnosis),
        str(case),
        f"{verdict.check} {verdict.output} {verdict.error}",
        diagnosis,
        round(taken, 2),
    )


def outcome(declared: str, diagnosis: Diagnosis) -> str:
    """As the module's docstring says."""
    if not diagnosis.name:
        return "unnamed" if declared else "quiet"
    if declared == diagnosis.name:
        return "among" if diagnosis.also else "right"
    return "among" if declared and declared in diagnosis.also else "wrong"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this mutant; repeatable")
    parser.add_argument("--subject", default="", help="mutants of this subject only")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th mutant, from the I-th on")
    parser.add_argument(
        "--shrink", type=float, default=5.0, metavar="SECONDS", help="of CPU time spent on a smaller case"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="of a diagnosis")
    parser.add_argument("--defects", type=Path, metavar="PATH", help="its DEFECTS in place of the curated bank")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every score")
    options = parser.parse_args()
    first, step = map(int, options.part.split("/"))
    chosen = [m for m in defects_of(options.defects) if not options.only or m.name in options.only]
    chosen = [m for m in chosen if options.subject in ("", m.subject)]
    chosen = [m for m in chosen[first::step] if not m.gpu and not m.control]
    scores: list[Score] = []
    torch.set_num_threads(1)  # as a worker of a search has, so that several parts run side by side
    with tempfile.TemporaryDirectory() as name, toolkit.open("cpu", plain=False, numerics="ieee"):
        sys.path.insert(0, name)
        for mutant in chosen:
            found = score(mutant, Path(name), options)
            scores.append(found)
            d = found.diagnosis
            print(f"{found.outcome:9} {found.name} [{found.declared}] -> {d.name} {' '.join(d.also)}", flush=True)
            print(f"          {found.failure} | {found.case} | {found.seconds} s")
            print(f"          {d.sentence} | {d.place}", flush=True)
            if options.json:
                options.json.write_bytes(msgspec.json.format(msgspec.json.encode(scores), indent=1))
    counts = Counter(found.outcome for found in scores)
    named = sum(bool(found.declared) and found.outcome != "not found" for found in scores)
    print(f"{dict(counts)}; right {counts['right']} of {named} that have one")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
