"""Which kernel met which axis under which check how often, from stored runs, as a Markdown table.

    python benchmarks/coverage_table.py RUN_DIR... > reports/NAME.md

A case counts in the row of every part that it has. A check counts where it gave a verdict, the accuracy columns where the
output was judged. Under the table: the worst ratio of each output, over all cases.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

from flashverify.campaign.store.writer import open_run
from flashverify.case.text import parse_case
from flashverify.checks.registry import CHECKS
from flashverify.judge.verdict import CaseResult, from_hex

OUTPUTS = ("o", "lse", "delta", "dq", "dk", "dv", "dbias", "dsink")
ORDER = (
    *("any", "plain", "causal", "window", "key_lengths", "query_lengths", "packed", "tree", "bitmap", "blocks"),
    *("softcap", "alibi", "bias", "sink", "dropout", "paged", "split given", "gqa", "backward", "dlse"),
)


@dataclass
class Row:
    """Counts of one kernel and part."""

    cases: int = 0
    failing: int = 0
    checks: Counter[str] = field(default_factory=Counter)
    outputs: Counter[str] = field(default_factory=Counter)


def parts_of(text: str) -> list[str]:
    """The rows in which a case counts."""
    case = parse_case(text)
    found = [*case.mask.parts(), *case.logits.names()]
    found += ["dropout"] * bool(case.dropout) + ["paged"] * (case.storage.page_size is not None)
    found = found or ["plain"]
    found += ["split given"] * ("n_splits" in dict(case.launch)) + ["gqa"] * (case.heads_q != case.heads_kv)
    return ["any", *found, *["backward"] * case.grad.backward, *["dlse"] * case.grad.dlse]


def main() -> int:
    """Print the table of the runs named on the command line."""
    rows: dict[tuple[str, str], Row] = {}
    worst: dict[tuple[str, str], float] = {}
    for path in sys.argv[1:]:
        for result in open_run(path).results():
            if not result.unsupported:
                count(result, rows, worst)
    names = (*CHECKS, *OUTPUTS)
    print("| kernel | axis | cases | failing | " + " | ".join(names) + " |")
    print("|---" * (4 + len(names)) + "|")
    for (subject, part), row in sorted(rows.items(), key=lambda item: (item[0][0], ORDER.index(item[0][1]))):
        numbers = [*(row.checks[name] for name in CHECKS), *(row.outputs[name] for name in OUTPUTS)]
        print(
            f"| {subject} | {part} | {row.cases} | {row.failing} | " + " | ".join(f"{n or ''}" for n in numbers) + " |"
        )
    print("\n| kernel | " + " | ".join(OUTPUTS) + " |")
    print("|---" * (1 + len(OUTPUTS)) + "|")
    for subject in sorted({subject for subject, _ in worst}):
        ratios = (worst.get((subject, name)) for name in OUTPUTS)
        print(f"| {subject} | " + " | ".join("" if ratio is None else f"{ratio:.3f}" for ratio in ratios) + " |")
    return 0


def count(result: CaseResult, rows: dict[tuple[str, str], Row], worst: dict[tuple[str, str], float]) -> None:
    """Add one case."""
    checks = {verdict.check for verdict in result.verdicts}
    outputs = {stats.output for stats in result.stats}
    for part in parts_of(result.case):
        row = rows.setdefault((result.subject, part), Row())
        row.cases += 1
        row.failing += bool(result.failures)
        row.checks.update(checks)
        row.outputs.update(outputs)
    for stats in result.stats:
        key = (result.subject, stats.output)
        worst[key] = max(worst.get(key, 0.0), from_hex(stats.worst))


if __name__ == "__main__":
    sys.exit(main())
