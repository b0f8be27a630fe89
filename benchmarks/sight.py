"""From which length on is a defect invisible? Planted defects over key lengths and dtypes, and the checks that see them.

    python benchmarks/sight.py judge FILE [--device interpreter|cuda] [--lengths 64,...] [--dtypes fp16,bf16,fp32] [--only NAME]...
                                     [--jobs 1] [--minutes M] [--only-unseen]
    python benchmarks/sight.py page [--write]

`judge` appends to FILE a line of JSON for each defect, length and dtype, with the checks that fail; what FILE holds is not judged again, so
that the same command goes on where it ended. Short lengths come first. `--only-unseen` judges anew what FILE says no check sees, beside what
it lacks; the last line of a place counts. Exit code 1: a check blames the kernels without a defect. In the interpreter the lengths end at 8,192, on
a GPU at 65,536.

The length is that of the sum in which the defect is: rows for a sum of dK or dV, keys for every other. A case has three more than the
length says, a causal mask and a backward; on the other side 384 rows or keys in two heads below 1,024, 96 in two heads up to 8,192,
128 in one head beyond. Its values are those of eight regimes with D = 64, one after the other, of two with D = 16, and of few keys; a defect is
seen that one of them shows, and the others are then left out. Those that showed it at another length come first. Asked are `accuracy`,
`nonfinite`, `statistics` and `counting`.

Where nothing shows a defect, the outputs of all cases are compared with those of the kernels without it: one tile may hold the whole sum, and then
a sum that is rounded after every tile has the right bits. Up to 128 terms the cases are then judged in tiles of 16.

`page` prints docs/sight.md with the tables of the records `reports/cpu/sight/sight.jsonl` and `reports/h200/sight/sight.jsonl`; `--write`
writes it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from sight_page import LINES, Sight, latest, page, read
from sight_places import CHECKS, CLEAN, DEFECTS, DTYPES, LENGTHS, ROUNDED, VALUES, Values, case_of, mutants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

_LONG = 16384
"""Keys from which on a case on a GPU takes longer than its compilation."""
_ONE_TILE, _SMALL = 128, 16
"""Terms up to which a tile of a GPU's launch may hold the whole sum, and the rows and keys of tiles that do not."""
_AT_ONCE = 3
"""Values of a long case of the kernels without a defect, all of which are judged, that one process takes."""
_Found = tuple[tuple[str, ...], str]
"""Checks that fail, each with its output, and the regime."""


def seen_by(subject: Subject, cases: Sequence[Case], until: float) -> _Found | None:
    """The checks that fail on the first case that shows a defect, with its regime; None where the time has come."""
    from flashverify.checks import Plan, judge_case

    for case in cases:
        if time.time() > until:
            return None
        failures = judge_case(subject, case, Plan(checks=CHECKS)).failures
        if failures:
            return tuple(dict.fromkeys(f"{v.check} {v.output}" for v in failures)), case.values.regime
    return (), ""


def same_bits(a: Subject, b: Subject, cases: Sequence[Case]) -> bool:
    """Whether two subjects return the same bits of every output in every case."""
    import torch

    from flashverify.case.memory.materialize import materialize
    from flashverify.checks.passes.execution import execute

    def bits(x: torch.Tensor) -> torch.Tensor:
        return x.contiguous().view({2: torch.int16, 4: torch.int32}[x.element_size()])

    for case in cases:
        of_a, of_b = (execute(s, materialize(case, s.device())[0]).outputs for s in (a, b))
        if of_a.keys() != of_b.keys() or not all(torch.equal(bits(of_a[name]), bits(of_b[name])) for name in of_a):
            return False
    return True


def look_at(
    defect: str, subject: Subject, place: tuple[int, str], values: Sequence[Values], until: float
) -> Sight | None:
    """What the checks say of one place; None where the time has come."""
    from flashverify.subjects.bundled import Bundled

    cases = [case_of(defect, *place, each) for each in values]
    found, same, tiles = seen_by(subject, cases, until), False, 0
    if found is not None and not found[0] and defect != CLEAN:
        right = Bundled(hopper=False)
        same = same_bits(subject, right, cases)
        if place[0] <= _ONE_TILE:
            small = [case_of(defect, *place, each, _SMALL) for each in values]
            found = seen_by(subject, small, until)
            if found is not None and found[0]:
                found = by_the_defect(found, right, [case for case in small if case.values.regime == found[1]], until)
            tiles = _SMALL if found is not None and found[0] else 0
    return None if found is None else Sight(defect, *place, *found, same=same, tiles=tiles)


def by_the_defect(found: _Found, right: Subject, cases: Sequence[Case], until: float) -> _Found | None:
    """What is seen less what the kernels without the defect fail too, in tiles in which nothing else judges them."""
    without = seen_by(right, cases, until)
    if without is not None and without[0]:
        print(f"blamed without a defect: {', '.join(map(str, cases))}: {without[0]}", file=sys.stderr)
        left = tuple(each for each in found[0] if each not in without[0])
        return left, found[1] if left else ""
    return None if without is None else found


def look(defect: str, todo: list[tuple[int, str]], values: Sequence[Values], first: str, until: float) -> list[Sight]:
    """Judge one defect at every length and dtype that is asked for, in a process of its own, until the time has come.

    Args:
        defect: its name.
        todo: lengths and dtypes.
        values: of `VALUES`.
        first: the regime that comes first, as it showed the defect elsewhere.
        until: the time.
    """
    from flashverify import corrected_interpreter
    from flashverify.mutants import build_mutant
    from flashverify.subjects import load_subject

    found: list[Sight] = []
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    with tempfile.TemporaryDirectory() as folder, corrected_interpreter() if interpreted else nullcontext():
        subject = load_subject("bundled" if defect == CLEAN else build_mutant(mutants()[defect], Path(folder)))
        for place in todo:
            ordered = sorted(values, key=lambda each: each[0] != first)
            sight = look_at(defect, subject, place, ordered, until)
            if sight is None:
                break
            found.append(sight)
            first = sight.regime or first
    return found


_Job = tuple[str, list[tuple[int, str]], tuple[Values, ...], str, float]


def jobs_of(options: argparse.Namespace, seen: list[Sight]) -> list[_Job]:
    """The arguments of `look` for what is missing; a place of the kernels without a defect is cut into several."""
    again = {(s.defect, s.length, s.dtype) for s in seen if options.only_unseen and s.hidden and s.defect != CLEAN}
    known = {(s.defect, s.length, s.dtype) for s in seen} - again
    lengths = sorted(map(int, options.lengths.split(","))) if options.lengths else LENGTHS[options.device]
    until = time.time() + 60 * options.minutes
    # A process keeps what it has compiled, which pays for short lengths on a GPU; elsewhere short jobs keep all processes busy.
    together = [length for length in lengths if options.device == "cuda" and length < _LONG]
    jobs: list[_Job] = []
    for part in [together, *([length] for length in lengths if length not in together)]:
        for defect in sorted(options.only or DEFECTS, key=lambda name: name == CLEAN):
            for dtype in options.dtypes.split(","):
                places = [(n, dtype) for n in part if (defect, n, dtype) not in known]
                if not places or (dtype == "fp32" and defect in ROUNDED):
                    continue
                longest = max(
                    (s for s in seen if (s.defect, s.dtype) == (defect, dtype) and s.regime),
                    key=lambda s: s.length,
                    default=None,
                )
                at_once = _AT_ONCE if defect == CLEAN and part != together else len(VALUES)
                jobs += [
                    (defect, places, VALUES[n : n + at_once], longest.regime if longest else "", until)
                    for n in range(0, len(VALUES), at_once)
                ]
    return jobs


def judge(options: argparse.Namespace) -> int:
    """Append what is missing to the file."""
    if options.device == "interpreter":
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    seen = read(options.file)
    jobs = jobs_of(options, seen)
    parts = Counter((defect, *place) for defect, places, *_ in jobs for place in places)
    planned, written = len(parts), 0
    options.file.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as processes, options.file.open("ab") as out:
        whole: dict[tuple[str, int, str], Sight] = {}
        for done in as_completed([processes.submit(look, *job) for job in jobs]):
            for sight in done.result():
                place = (sight.defect, sight.length, sight.dtype)
                whole[place] = sight if sight.seen else whole.get(place, sight)
                parts[place] -= 1
                if not parts[place]:
                    out.write(LINES.encode(whole[place]) + b"\n")
                    seen.append(whole[place])
                    written += 1
            out.flush()
    seen = latest(seen)
    missing = planned - written
    print(f"{len(seen)} places judged, {missing} left; the same command goes on" if missing else f"{len(seen)} judged")
    for sight in seen:
        if sight.defect == CLEAN and sight.seen:
            print(f"blamed without a defect: {sight}")
    return int(any(s.seen for s in seen if s.defect == CLEAN))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("file", type=Path, help="of the lines; it is appended to")
    judging.add_argument("--device", choices=tuple(LENGTHS), default="interpreter")
    judging.add_argument("--lengths", default="")
    judging.add_argument("--dtypes", default=",".join(DTYPES))
    judging.add_argument("--only", action="append", default=[], metavar="NAME", choices=DEFECTS)
    judging.add_argument("--jobs", type=int, default=1, help="processes")
    judging.add_argument(
        "--only-unseen", action="store_true", help="judge anew what no check sees, and what is missing"
    )
    judging.add_argument("--minutes", type=float, default=1e6, help="after which no case is begun")
    writing = commands.add_parser("page")
    writing.add_argument("--write", action="store_true", help="write docs/sight.md")
    options = parser.parse_args()
    return judge(options) if options.command == "judge" else page(DEFECTS, DTYPES, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
