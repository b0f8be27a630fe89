"""Write the packaged corpus anew from stored runs.

    python benchmarks/build_corpus.py worst RUN_DIR... [--most 150] [--judged 400] [--seconds 2] [--append]
    python benchmarks/build_corpus.py detecting FILE... [--most 100]

`worst` takes clean cases of ordinary runs: of each output and mode the one with the largest error / bound for each dtype, part of the
mask, modification and regime. They are judged again by interpreted or CPU subjects, shrunk while the ratio stays at nine tenths of
its own, and kept with the ratio that they have here. `detecting` takes the results of `flashverify mutants` (JSON lines with name,
status and case): the fewest cases that showed every part and regime, then those that showed defects of most files.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("TRITON_INTERPRET", "1")

from flashverify.campaign.corpus import DETECTING, WORST, Entry, format_entry, read_corpus
from flashverify.campaign.shrink.shrinker import measure, shrink
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.campaign.worker.climb import ratios
from flashverify.case.text import parse_case
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult

FOLDER = Path(__file__).parents[1] / "flashverify/campaign/corpus"
KEPT = 0.9
MAX_WORK = 2_500_000
"""Of a case that is kept: pairs over all heads times head dims; it is judged by the interpreter."""


def values(case: Case) -> set[str]:
    """What a case stands for: dtype, parts, modifications, regime and storage."""
    found = {case.dtype, case.values.regime, *case.mask.parts(), *case.logits.names()}
    found |= {"dropout"} if case.dropout else set()
    found |= {"paged"} if case.storage.page_size else set()
    found |= {"groups"} if case.heads_q > case.heads_kv else set()
    return found | ({"dlse"} if case.grad.dlse and case.grad.backward else set())


def work(case: Case) -> int:
    return case.batch * case.heads_q * case.seq_q * case.seq_k * (case.dim_qk + case.dim_v)


def clean(result: CaseResult) -> bool:
    return not any(v.status in (Status.FAIL, Status.ERROR, Status.UNSUPPORTED) for v in result.verdicts)


def candidates(runs: list[Path]) -> dict[tuple[str, str], tuple[float, str, str]]:
    """By (output and mode, value) the largest ratio, with its subject and case."""
    best: dict[tuple[str, str], tuple[float, str, str]] = {}
    for run in runs:
        for result in filter(clean, open_run(run).results()):
            found = {label: ratio for label, ratio in ratios(result).items() if ratio <= 1}
            case = parse_case(result.case)
            if work(case) > MAX_WORK:
                continue
            for label, ratio in found.items():
                for value in values(case):
                    if ratio > best.get((label, value), (0.0, "", ""))[0]:
                        best[label, value] = (ratio, result.subject, result.case)
    return best


def judged(subject: str, case: Case) -> dict[str, float]:
    """Ratios by output and mode; empty where the case is not clean."""
    loaded = toolkit.load(subject)
    if toolkit.refusal(loaded, case) is not None:
        return {}
    try:
        result = toolkit.judge(loaded, case, "only:accuracy")
    except FlashverifyError:
        return {}
    if not clean(result):
        print(f"not clean: {subject} {case}", file=sys.stderr)
        return {}
    return ratios(result)


def smaller(subject: str, case: Case, label: str, value: str, ratio: float, seconds: float) -> tuple[Case, float]:
    """The smallest case with the value and nine tenths of the ratio that is found in `seconds`."""
    least, deadline, steps = KEPT * ratio, time.monotonic() + seconds, shrink(case)
    candidate = next(steps, None)
    while candidate is not None and time.monotonic() < deadline:
        found = judged(subject, candidate).get(label, 0.0) if value in values(candidate) else 0.0
        if found >= least:
            case, ratio = candidate, found
        try:
            candidate = steps.send(found >= least)
        except StopIteration:
            break
    return case, ratio


def worst(options: argparse.Namespace) -> list[Entry]:
    wanted: dict[tuple[str, str], list[tuple[float, str, str]]] = defaultdict(list)
    for (label, value), (ratio, subject, text) in candidates(options.sources).items():
        wanted[subject, text].append((ratio, label, value))
    order = sorted(wanted.items(), key=lambda item: (-len(item[1]), item[0]))
    entries = {entry.case: entry for entry in read_corpus(WORST)} if options.append else {}
    most = len(entries) + options.most
    deadline = time.monotonic() + options.budget
    with toolkit.open("cpu", plain=False, numerics="ieee"):
        for (subject, text), reasons in order[: options.judged]:
            if len(entries) >= most or time.monotonic() > deadline:
                break
            case = parse_case(text)
            found = judged(subject, case)  # a run on a GPU may have had another ratio
            ratio, label, value = max((found.get(label, 0.0), label, value) for _, label, value in reasons)
            if ratio >= options.least:
                case, ratio = smaller(subject, case, label, value, ratio, options.seconds)
                output, mode = label.split()
                entries[case] = Entry(case=case, ratio=ratio, output=output, mode=mode, subject=subject)
    return sorted(entries.values(), key=lambda e: (e.output, e.mode, -e.ratio, measure(e.case)))


def results(files: list[Path]) -> Iterator[tuple[str, Case]]:
    """(mutant, smallest detecting case) of every mutant that was found."""
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            text = record.get("minimal") or record.get("case")
            if record.get("status") == "found" and text:
                yield record["name"], parse_case(text)


def detecting(options: argparse.Namespace) -> list[Entry]:
    found: dict[Case, set[str]] = defaultdict(set)
    for name, case in results(options.sources):
        if work(case) <= MAX_WORK:
            found[case].add(name)
    uncovered = {value for case in found for value in values(case)}
    chosen: list[Case] = []
    rest = sorted(found, key=lambda case: (-len(found[case]), measure(case)))
    while rest and len(chosen) < options.most:
        case = max(rest, key=lambda c: (len(values(c) & uncovered), len(found[c]), -measure(c)[0]))
        rest.remove(case)
        chosen.append(case)
        uncovered -= values(case)
    return [Entry(case=case, found=",".join(sorted(found[case])[:2])) for case in chosen]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("worst", "detecting"))
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE")
    parser.add_argument("--most", type=int, default=150, help="cases to keep")
    parser.add_argument("--least", type=float, default=0.05, help="ratio below which a case is not kept")
    parser.add_argument("--append", action="store_true", help="keep the cases that are in worst.txt")
    parser.add_argument("--judged", type=int, default=400, help="candidates to judge")
    parser.add_argument("--seconds", type=float, default=2.0, help="of shrinking one case")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds of all")
    options = parser.parse_args()
    entries = worst(options) if options.kind == "worst" else detecting(options)
    target = FOLDER / (WORST if options.kind == "worst" else DETECTING)
    target.write_text("".join(f"{format_entry(entry)}\n" for entry in entries), encoding="ascii")
    print(f"{target}: {len(entries)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
