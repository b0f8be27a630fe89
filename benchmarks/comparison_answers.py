"""What `flashverify compare` says of changes to the bundled kernels whose right answer is known, and of no change at all.

    python benchmarks/comparison_answers.py FILE [--part changes|selves|refactors]... [--cases 60] [--few 12] [--jobs 2]

Eight changes are made to copies of the kernels, each compared with the original as two folders: a harmless refactor, exp2 to exp, P rounded
to bf16, smaller tiles, the row sum of rounded P, a doubled scale that cancels, a value read that another program writes, and the LSE in the
input dtype. Then the kernels are compared with themselves, and with refactors that rename what they compute, on other drawn cases each
time. Prints the answers and the share of right ones, writes them as JSON lines, and exits with 1 where one is not right. What FILE
holds already is not asked again, so that the same command goes on where it was interrupted; a comparison that gave no answer is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "kernels/flashverify_kernels"
PARTS = ("changes", "selves", "refactors")
MAY, LOOK, NOT = "may merge", "look", "do not merge"


@dataclass(frozen=True)
class Change:
    """A change, and what may be said of it.

    Attributes:
        file: below the package.
        edits: texts and what replaces each, wherever it stands.
        right: the answers that are right.
        unchanged: whether no element may change.
    """

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    right: tuple[str, ...]
    unchanged: bool = False


_SUM = "return p, m_new, l_i * alpha + tl.sum(p, 1), alpha"
_STORE_LSE = "tl.store(row_ptrs(stats.lse2, stats, b, h, q0, i), lse2, mask=i < sq)"
CHANGES = (
    Change("refactor", "device/softmax.py", (("pivot", "shift"), ("m_new", "highest")), (MAY,), unchanged=True),
    Change("exp2_to_exp", "device/softmax.py", (("p = tl.exp2(z - pivot[:, None])", "p = tl.exp((z - pivot[:, None]) * 0.6931471805599453)"),), (MAY, LOOK)),
    Change("p_to_bf16", "device/forward.py", (("tl.dot(p.to(v.dtype), v,", "tl.dot(p.to(tl.bfloat16).to(v.dtype), v,"),), (NOT,)),
    Change("other_tiles", "config.py", (("config = LaunchConfig(block_m=64, block_n=64)", "config = LaunchConfig(block_m=32, block_n=32)"),), (MAY, LOOK)),
    Change("row_sum_of_rounded_p", "device/softmax.py", ((_SUM, _SUM.replace("tl.sum(p, 1)", "tl.sum(p.to(tl.bfloat16).to(tl.float32), 1)")),), (NOT,)),
    Change("doubled_scale_that_cancels", "device/dq.py", (("dq * terms.scale,", "dq * (2.0 * terms.scale) * 0.5,"),), (MAY,)),
    Change("racy", "device/delta.py", (("    tl.store(row_ptrs(stats.delta", "    tl.load(stats.delta)\n    tl.store(row_ptrs(stats.delta"),), (NOT,)),
    Change("lse_in_the_input_dtype", "device/forward.py", ((_STORE_LSE, _STORE_LSE.replace("lse2, mask", "lse2.to(q.dtype), mask")),), (NOT,)),
)  # fmt: skip
_RENAMED = ("alpha", "pivot", "m_new", "divisor", "acc", "limits", "band", "see", "z", "dot")


def refactors(count: int) -> list[Change]:
    """Changes that rename one local name of the forward or of the softmax."""
    files = ("device/softmax.py", "device/forward.py")
    found = []
    for number in range(count):
        name, file = _RENAMED[number % len(_RENAMED)], files[number // len(_RENAMED) % 2]
        found.append(
            Change(f"refactor_{number}_{name}", file, ((rf"\b{name}\b", f"{name}_{number}"),), (MAY,), unchanged=True)
        )
    return found


def copy_of(place: Path, change: Change | None) -> Path:
    """A folder with the kernels, changed."""
    folder = place / ("before" if change is None else "after")
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    if change is not None:
        file = folder / PACKAGE / change.file
        text = file.read_text(encoding="utf-8")
        for old, new in change.edits:
            if old.startswith(r"\b"):
                changed = _renamed(text, old[2:-2], new)
            else:
                assert old in text, f"{change.name}: {old!r} is not in {change.file}"
                changed = text.replace(old, new)
            text = changed
        file.write_text(text, encoding="utf-8")
    return folder


def _renamed(text: str, name: str, new: str) -> str:
    """The text with a name replaced where it is a variable; its docstrings, keywords and attributes stay."""
    import ast

    lines = text.split("\n")
    places = {
        (node.lineno - 1, node.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name | ast.arg) and (node.id if isinstance(node, ast.Name) else node.arg) == name
    }
    for line, column in sorted(places, reverse=True):
        lines[line] = lines[line][:column] + new + lines[line][column + len(name) :]
    return "\n".join(lines)


def answer(change: Change | None, number: int, cases: int) -> dict[str, object]:
    """What is said of a change; None is no change."""
    with tempfile.TemporaryDirectory(prefix="comparison-") as name:
        place = Path(name)
        before = copy_of(place, None)
        after = before if change is None else copy_of(place, change)
        command = (sys.executable, "-m", "flashverify", "compare", str(before), str(after), "--subject", "bundled", "--device", "cpu", "--workers", "1", "--cases", str(cases), "--seed", str(number), "--out", str(place / "out"), "--json")  # fmt: skip
        path = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "oracles"), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(path)}, check=False)  # fmt: skip
        try:
            found = json.loads(done.stdout)
        except ValueError:
            return {
                "name": change.name if change else "self",
                "seed": number,
                "cases": cases,
                "decision": "none",
                "right": False,
                "sentence": done.stderr[-800:],
            }
    right = found["decision"] in (change.right if change else (MAY,))
    if change is None or change.unchanged:
        right = right and found["elements"]["unchanged"]
    return {
        "name": change.name if change else "self",
        "seed": number,
        "cases": cases,
        "decision": found["decision"],
        "right": right,
        "sentence": found["sentence"],
        "reasons": found["reasons"],
        "functions": [each["name"] for each in found["functions"]],
        "measured": found["elements"]["measured"],
    }


Key = tuple[str, int, int]
"""Of an answer: name, seed, drawn cases."""


def answered(file: Path) -> dict[Key, dict[str, object]]:
    """The answers that a file holds; a line that an interruption cut is none."""
    found: dict[Key, dict[str, object]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            row = json.loads(line)
            if row["decision"] != "none":
                found[row["name"], row["seed"], row["cases"]] = row
        except (ValueError, KeyError):
            continue
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable; all of them by default")
    parser.add_argument("--cases", type=int, default=60, help="drawn for each of the eight changes")
    parser.add_argument("--few", type=int, default=12, help="drawn for each self and refactor")
    parser.add_argument("--selves", type=int, default=50)
    parser.add_argument("--refactors", type=int, default=20)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="these of the eight changes")
    parser.add_argument("--jobs", type=int, default=1, help="comparisons at a time, each of three processes")
    options = parser.parse_args()
    wanted = [change for change in CHANGES if not options.only or change.name in options.only]
    tasks: dict[str, list[tuple[Change | None, int, int]]] = {
        "changes": [(change, 7, options.cases) for change in wanted],
        "selves": [(None, 100 + number, options.few) for number in range(options.selves)],
        "refactors": [(each, 200 + number, options.few) for number, each in enumerate(refactors(options.refactors))],
    }
    asked = [task for part in options.part or PARTS for task in tasks[part]]
    known = answered(options.file)
    rows = [row for change, *rest in asked if (row := known.get((change.name if change else "self", *rest)))]
    open_ones = [task for task in asked if (task[0].name if task[0] else "self", *task[1:]) not in known]
    if rows:
        print(f"{len(rows)} of {len(asked)} are answered already")
    if options.file.exists() and not options.file.read_bytes().endswith(b"\n"):
        with options.file.open("a", encoding="utf-8") as record:
            record.write("\n")  # ends the line that an interruption cut
    with ThreadPoolExecutor(options.jobs) as pool, options.file.open("a", encoding="utf-8") as record:
        for future in as_completed([pool.submit(answer, *task) for task in open_ones]):
            row = future.result()
            rows.append(row)
            record.write(json.dumps(row) + "\n")
            record.flush()
            print(f"{'right' if row['right'] else 'WRONG'}  {row['name']} {row['seed']}: {row['sentence']}", flush=True)
    right = sum(bool(row["right"]) for row in rows)
    print(f"{right} of {len(asked)} right")
    return int(right < len(asked))


if __name__ == "__main__":
    sys.exit(main())
