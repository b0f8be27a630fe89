"""The cases among which every planted defect must be found, and which of them finds it soonest.

`shown_by.txt` holds that case for each defect, so that a hunt need not repeat the search. A line that is out of date costs time
and proves nothing: its case is judged only where it is in the corpus or is drawn.
`TRITON_INTERPRET=1 python -m tests.mutants.hunting [JOBS]` writes the file anew.
"""

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

from flashverify.campaign.corpus import corpus_cases
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.campaign.worker.search import draw
from flashverify.case.case import Case
from flashverify.case.text import format_case
from flashverify.mutants import BANK, build_mutant
from flashverify.mutants.mutant import Mutant
from flashverify.mutants.runner.hunt import counts
from flashverify.subjects import load_subject

CASES = 250
"""Different cases of a batch."""
BATCHES = 8
"""Two features at once are rare; most defects are found in the first batch."""
ATTEMPTS = 5
"""Seeds that a batch may take."""
SHOWN_BY = Path(__file__).with_name("shown_by.txt")


def work(case: Case) -> int:
    return case.batch * case.heads_q * case.seq_q * case.seq_k * (case.dim_qk + case.dim_v)


@cache
def batch(subject: str, number: int) -> dict[str, Case]:
    """Cases by their text, those of least work first: the corpus, then what a campaign draws."""
    spec = load_subject(subject)
    found = draw(toolkit.strategy(spec, "cpu"), CASES, (number - 1) * ATTEMPTS) if number else corpus_cases()
    return {format_case(case): case for case in sorted(found, key=work)}


def cases(mutant: Mutant) -> Iterator[Case]:
    """Everything that may show the defect; first the case that is known to, where it is among the others."""
    batches = (batch(mutant.subject, number) for number in range(1 + BATCHES))
    number, text = known().get(mutant.name, (0, ""))
    if text in batch(mutant.subject, number):
        yield batch(mutant.subject, number)[text]
    yield from filter(mutant.concerns, chain.from_iterable(each.values() for each in batches))


@cache
def known() -> dict[str, tuple[int, str]]:
    """By defect: the number of the batch, and the case in it."""
    lines = SHOWN_BY.read_text(encoding="utf-8").splitlines() if SHOWN_BY.exists() else []
    fields = (line.split(" ", 2) for line in lines)
    return {name: (int(number), text) for name, number, text in fields}


def showing(mutant: Mutant, folder: Path) -> Case | None:
    """The first case whose verdicts show the defect; `folder` takes the mutated package and is a place of imports."""
    subject = toolkit.load(build_mutant(mutant, folder))
    return next(
        (c for c in cases(mutant) if any(counts(mutant, v) for v in toolkit.judge(subject, c, "fuzz").failures)), None
    )


def line_of(name: str) -> str:
    """The line of a defect in the file."""
    mutant = next(each for each in BANK if each.name == name)
    with tempfile.TemporaryDirectory() as folder, toolkit.open("cpu", plain=False, numerics="ieee"):
        sys.path.insert(0, folder)
        try:
            case = showing(mutant, Path(folder))
        finally:
            sys.path.remove(folder)
    text = "" if case is None else format_case(case)
    number = next((n for n in range(1 + BATCHES) if text in batch(mutant.subject, n)), 0)
    return f"{mutant.name} {number} {text}"


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    lines = []
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for line in pool.map(line_of, [mutant.name for mutant in BANK]):
            lines.append(line)
            print(line, flush=True)
    SHOWN_BY.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
