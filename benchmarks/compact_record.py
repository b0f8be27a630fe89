"""Compact a stored run into one compressed table, a line per case, for `reports/`.

    python benchmarks/compact_record.py RUN_DIR reports/NAME.tsv.xz

Columns: the case, its status, elements, exempt and uninformative ones, then the worst ratio of each output and mode.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

from flashverify.campaign.store.writer import open_run
from flashverify.judge.verdict import CaseResult, from_hex
from flashverify.outputs import OUTPUTS

COLUMNS = [
    (output, mode)
    for mode in ("end-to-end", "conditional")
    for output in OUTPUTS
    if mode == "end-to-end" or output not in ("o", "lse")
] + [("o", "strict"), ("dv", "strict")]


def line(result: CaseResult) -> str:
    """One case as tab-separated text; ratios to four significant digits."""
    worst = {(s.output, s.mode): f"{from_hex(s.worst):.4g}" for s in result.stats}
    status = "unsupported" if result.unsupported else "fail" if result.failures else "pass"
    counts = [sum(getattr(s, field) for s in result.stats) for field in ("elements", "exempt", "uninformative")]
    return "\t".join([result.case, status, *map(str, counts), *(worst.get(column, "") for column in COLUMNS)])


def main() -> int:
    run, target = Path(sys.argv[1]), Path(sys.argv[2])
    names = ["case", "status", "elements", "exempt", "uninformative", *(f"{output} {mode}" for output, mode in COLUMNS)]
    with lzma.open(target, "wt", preset=9) as file:
        file.write("\t".join(names) + "\n")
        for result in open_run(run).results():
            file.write(line(result) + "\n")
    print(f"{target}: {target.stat().st_size / 2**20:.2f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
