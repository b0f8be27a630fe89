"""Which rule finds which planted defect: the same mutants and cases judged by the rules of other suites and by ours.

    python benchmarks/kill_matrix.py [--cases 40] [--workers N] [--generated N] [--only NAME ...] [--inputs NAME ...]
        [--json FILE] [--markdown FILE] [--compact FILE]

Every mutant is run on `--cases` problems that concern it, of each suite's own kind of inputs and of ours; each problem is run
once and its outputs are put to every rule. A rule finds a mutant on a case only where it accepts the unmutated kernel on that
case. Lines of JSON are written as they come, and a run that is started again with the same settings goes on where it ended.
The rules and their sources: benchmarks/comparison_rules/rules.py.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from comparison_rules.inputs import SUBJECTS
from comparison_rules.problems import Problems
from comparison_rules.record import Record
from comparison_rules.scheduler import run_tasks
from comparison_rules.work import CleanTask, MutantTask

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.mutants.mutant import Mutant

CHUNK = 60
"""Cases of the unmutated kernel per process."""


def main() -> int:
    options = _options()
    try:
        return _run(options)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=40, help="problems of each kind per mutant")
    parser.add_argument("--seed", type=int, default=0, help="of our draws and of the sample of generated mutants")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--generated", type=int, default=0, metavar="N", help="judge N generated mutants instead of the bank"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="mutants")
    parser.add_argument("--inputs", nargs="+", metavar="NAME", help="kinds of inputs, out of the names in the tables")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a process may take")
    parser.add_argument("--json", type=Path, default=Path("out/kill_matrix.jsonl"))
    parser.add_argument("--markdown", type=Path, help="the full report")
    parser.add_argument("--compact", type=Path, help="the short table")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> int:
    from comparison_rules.judging import RULES
    from comparison_rules.tables import Matrix, compact
    from comparison_rules.text import report

    started = time.monotonic()
    mutants = _mutants(options)
    settings = {"cases": options.cases, "seed": options.seed}
    record = Record.open(options.json, settings)
    problems = Problems(options.cases, options.seed, options.inputs)
    lists = {m.name: {name: problems.of(m, name) for name in problems.inputs} for m, _ in mutants}
    _say(
        started,
        f"{len(mutants)} mutants, {sum(len(c) for x in lists.values() for c in x.values()):,} pairs of mutant and case",
    )
    with tempfile.TemporaryDirectory() as folder:
        shared: dict[str, Any] = {"workers": options.workers, "limit": options.limit, "rules": RULES}
        clean = list(_clean_tasks(mutants, lists, record))
        (Path(folder) / "clean").mkdir()
        (Path(folder) / "mutants").mkdir()
        for line in run_tasks(clean, folder=Path(folder) / "clean", **shared):
            record.add(line)
        _say(started, "the unmutated kernels are judged")
        todo = list(_mutant_tasks(mutants, lists, record, RULES))
        for line in run_tasks(todo, folder=Path(folder) / "mutants", **shared):
            record.add(line)
            died = f"  died: {line['died']}" if "died" in line else ""
            _say(started, f"{line['mutant']}  {line['inputs']}: {len(line['first'])} of {len(RULES)} rules{died}")
    matrix = Matrix(record, mutants, problems.inputs, options.cases)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(report(matrix, options.generated), encoding="utf-8")
    if options.compact:
        options.compact.write_text(compact(matrix), encoding="utf-8")
    print(compact(matrix))
    return 0


def _mutants(options: argparse.Namespace) -> list[tuple[Mutant, str]]:
    """The mutants that an interpreted kernel shows, with their themes: the bank's by its file, generated ones by the kernel's."""
    from flashverify.mutants.bank import CURATED

    if options.generated:
        from flashverify.mutants.operators.generate import generated
        from flashverify.mutants.runner.select import equivalent

        known = equivalent()
        found = [m for m in generated() if m.name not in known]
        found = random.Random(options.seed).sample(found, min(options.generated, len(found)))
        themes = {m.name: Path(m.file).stem for m in found}
    else:
        found, themes = [m for m in CURATED if m.subject in SUBJECTS], _themes()
    unknown = set(options.only or ()) - {m.name for m in found}
    if unknown:
        raise UsageError(f"only={sorted(unknown)[0]!r} is not accepted: not a mutant of this run")
    chosen = [m for m in found if not m.gpu and not m.control and (not options.only or m.name in options.only)]
    return sorted(((m, themes.get(m.name, "other")) for m in chosen), key=lambda pair: pair[1])


def _themes() -> dict[str, str]:
    """Themes of the bank's mutants by name: the modules of `flashverify.mutants.bank`."""
    from flashverify.mutants import bank
    from flashverify.mutants.mutant import Mutant

    found: dict[str, str] = {}
    for module in pkgutil.iter_modules(bank.__path__, f"{bank.__name__}."):
        theme = module.name.rpartition(".")[2]
        for value in vars(importlib.import_module(module.name)).values():
            members = value if isinstance(value, tuple) else ()
            found |= {m.name: theme for m in members if isinstance(m, Mutant)}
    return found


def _clean_tasks(
    mutants: list[tuple[Mutant, str]], lists: dict[str, dict[str, tuple[str, ...]]], record: Record
) -> Iterator[CleanTask]:
    """Every case of every mutant once, in chunks; those of the record left out."""
    wanted: dict[tuple[str, str], dict[str, None]] = {}
    for mutant, _ in mutants:
        for inputs, cases in lists[mutant.name].items():
            done = record.clean[mutant.subject, inputs]
            wanted.setdefault((mutant.subject, inputs), {}).update(dict.fromkeys(c for c in cases if c not in done))
    for (subject, inputs), missing in wanted.items():
        texts = tuple(missing)
        yield from (CleanTask(subject, inputs, texts[n : n + CHUNK]) for n in range(0, len(texts), CHUNK))


def _mutant_tasks(
    mutants: list[tuple[Mutant, str]],
    lists: dict[str, dict[str, tuple[str, ...]]],
    record: Record,
    rules: tuple[str, ...],
) -> Iterator[MutantTask]:
    for mutant, _ in mutants:
        left = {}
        for inputs, cases in lists[mutant.name].items():
            if inputs not in record.mutants[mutant.name]:
                clean = record.clean[mutant.subject, inputs]
                left[inputs] = tuple((text, tuple(r for r in rules if clean[text][r] is False)) for text in cases)
        if left:
            yield MutantTask(mutant, left)


def _say(started: float, text: str) -> None:
    print(f"{time.monotonic() - started:7.1f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
