"""What a person sees of planted defects: `flashverify fuzz --minutes 1` on each, timed from the outside.

    python benchmarks/as_a_user.py FILE [--only NAME]... [--part I/N] [--defects PATH | --pairs] [--jobs 1] [--cores N]
    python benchmarks/as_a_user.py FILE --table

A line of FILE, JSON, is one defect; defects that FILE holds already are not run again. The defects are those of the curated bank that
the interpreter shows, or `DEFECTS`, a tuple of `Mutant`, of a Python file or of every file of a folder; `--pairs` plants two of
`PAIRS` at once, one of them loud; `--device cuda` has those that only compiled code on a GPU shows. For each: seconds to the first
message about a failure and to the end, findings, folded failures, and the diagnosis against the semantics that the defect declares:
`right`, the declared name and no other; `partly`, one of several names that no case told apart; `wrong`, another name; `none`;
`not found`. Of a defect that declares no name `none` is all that can be right. Exit code 1 where a diagnosis is wrong. `--cores 2`
gives each run two processors of its own, as a machine of two would.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec
from planted import defects_of, plant

from flashverify.judge.record import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flashverify.mutants import Mutant

PAIRS = """
scale_of_natural_units+dsink_with_the_wrong_sign causal_off_by_one+cap_without_derivative lse_in_the_wrong_base+dk_without_scale
alpha_not_applied+bits_ignored_in_dkdv delta_missing+kept_weights_not_scaled wrong_gqa_head+padded_rows_keep_their_dq
running_max_starts_at_zero+dv_not_scaled causal_without_effect+window_exclusive_on_the_left
bias_in_the_wrong_base+tree_node_sees_its_sibling distance_with_a_sign+padded_keys_in_backward
cap_given_without_effect+dsink_without_dlse weights_truncated+gradients_of_no_queries_unwritten
row_sum_of_rounded_weights+window_ignored_in_dkdv masked_row_averages+dp_not_scaled
backward_always_causal+lse_without_the_sink merged_lse_in_the_wrong_base+merged_weights_not_normalised
page_of_sixteen+all_splits_empty heads_dealt_out_in_turn+remainder_of_a_split_lost
keys_before_the_chunk_uncounted+dbias_of_the_last_head draws_kept_inverted+relative_clipped_early
""".split()  # noqa: SIM905
ORDER = ("right", "partly", "wrong", "none", "not found")


class Seen(msgspec.Struct):
    """What one run said."""

    name: str
    declared: tuple[str, ...]
    outcome: str
    exit_code: int
    first: float
    end: float
    findings: int
    folded: int
    covered: int
    diagnoses: tuple[Diagnosis, ...] = ()
    headlines: tuple[str, ...] = ()


def build(defect: Sequence[Mutant], folder: Path) -> str:
    """Plant every mutant of a defect in one copy of the kernels; returns the spec of the subject."""
    spec = plant(defect[0], folder)
    package = f"mutant_{defect[0].name}"
    for mutant in defect[1:]:
        file = folder / package / mutant.file
        text = file.read_text(encoding="utf-8")
        before, after = (part.replace("flashverify_kernels", package) for part in (mutant.before, mutant.after))
        if text.count(before) != 1 or mutant.subject != defect[0].subject:
            raise SystemExit(f"{mutant.name} cannot be planted beside {defect[0].name}")
        file.write_text(text.replace(before, after), encoding="utf-8")
    return spec


def run(defect: Sequence[Mutant], minutes: float, device: str, cores: Iterable[int], keep: Path | None) -> Seen:
    """Run the command as a person would, on `cores` alone, and read what it printed; in the folder `keep` that is left too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "flashverify", "fuzz", "--subject", build(defect, folder)]
        command += ["--json", "--no-report"]
        command += ["--minutes", str(minutes), "--out", str(folder / "run"), "--device", device]
        keep_to = functools.partial(os.sched_setaffinity, 0, cores)
        begun, first = time.monotonic(), 0.0
        with (folder / "out").open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True, preexec_fn=keep_to)
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if not first and line.startswith("finding: "):
                    first = time.monotonic() - begun
            code = process.wait()
        end = time.monotonic() - begun
        printed = (folder / "out").read_text(encoding="utf-8")
        report = json.loads(printed or "{}")
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            name = "+".join(mutant.name for mutant in defect)
            (keep / f"{name}.json").write_text(printed, encoding="utf-8")
            (keep / f"{name}.txt").write_text("".join(said), encoding="utf-8")
            shutil.copytree(folder / "run", keep / name, dirs_exist_ok=True)
    found = report.get("findings", [])
    diagnoses = tuple(msgspec.convert(f.get("diagnosis") or {}, Diagnosis) for f in found)
    declared = tuple(dict.fromkeys(mutant.semantics for mutant in defect if mutant.semantics))
    return Seen(
        name="+".join(mutant.name for mutant in defect),
        declared=declared,
        outcome=outcome(declared, diagnoses, len(found)),
        exit_code=code,
        first=round(first, 1),
        end=round(end, 1),
        findings=len(found),
        folded=sum(len(f.get("folded", ())) for f in found),
        covered=report.get("summary", {}).get("covering", 0),
        diagnoses=diagnoses,
        headlines=tuple(" ".join(map(str, f["key"].values())) for f in found),
    )


def outcome(declared: Sequence[str], diagnoses: Sequence[Diagnosis], findings: int) -> str:
    """As the module's docstring says."""
    if not findings:
        return "not found"
    named = [diagnosis for diagnosis in diagnoses if diagnosis.name]
    if any(not {d.name, *d.also} & set(declared) for d in named):
        return "wrong"
    if not declared or not set(declared) <= {d.name for d in named}:
        return "partly" if any(set(d.also) & set(declared) for d in named) else "none"
    return "partly" if any(d.also for d in named) else "right"


def table(seen: Sequence[Seen]) -> str:
    """The figures of all runs in Markdown."""
    lines = [
        "| defect | first, s | end, s | findings | folded | diagnosis | name | conditions |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for s in seen:
        names = ", ".join(dict.fromkeys(d.name for d in s.diagnoses if d.name)) or "–"
        conditions = "; ".join(dict.fromkeys(c for d in s.diagnoses for c in d.conditions)) or "–"
        lines.append(
            f"| {s.name} | {s.first} | {s.end} | {s.findings} | {s.folded} | {s.outcome} | {names} | {conditions} |"
        )
    found = [s for s in seen if s.findings]
    if not found:
        return "\n".join([*lines, "", f"{len(seen)} defects, none found"])
    named = [s for s in found if s.declared]
    counts, quiet = Counter(s.outcome for s in named), Counter(s.outcome for s in found if not s.declared)
    lines += [
        "",
        f"{len(seen)} defects, {len(found)} found; first message: median {statistics.median(s.first for s in found):.1f} s, "
        f"latest {max(s.first for s in found):.1f} s; end: latest {max(s.end for s in seen):.1f} s",
        f"findings: one for {sum(s.findings == 1 for s in found)}, two for {sum(s.findings == 2 for s in found)}, "
        f"more for {sum(s.findings > 2 for s in found)}",
        f"diagnosis of the {len(named)} found that declare a semantics: "
        + ", ".join(f"{counts[name]} {name}" for name in ORDER[:4]),
        f"of the {len(found) - len(named)} that declare none: {quiet['none']} without a name, {quiet['wrong']} with one",
    ]
    return "\n".join(lines)


def chosen_defects(options: argparse.Namespace) -> list[tuple[Mutant, ...]]:
    """Those that the command line asks for."""
    bank = defects_of(options.defects)
    by_name = {mutant.name: mutant for mutant in bank}
    names = PAIRS if options.pairs else [m.name for m in bank if m.gpu == (options.device == "cuda") and not m.control]
    first, step = map(int, options.part.split("/"))
    chosen = [name for name in names if not options.only or name in options.only][first::step]
    return [tuple(by_name[part] for part in name.split("+")) for name in chosen]


def places(jobs: int, cores: int | None) -> SimpleQueue[list[int]]:
    """The processors of each run at a time."""
    all_cores = sorted(os.sched_getaffinity(0))
    if cores and jobs * cores > len(all_cores):
        raise SystemExit(f"--jobs {jobs} of --cores {cores} need {jobs * cores} processors, there are {len(all_cores)}")
    free: SimpleQueue[list[int]] = SimpleQueue()
    for job in range(jobs):
        free.put(all_cores[job * cores : (job + 1) * cores] if cores else all_cores)
    return free


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="of the lines; it is appended to")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th defect, from the I-th on")
    parser.add_argument("--defects", type=Path, metavar="PATH", help="its DEFECTS in place of the curated bank")
    parser.add_argument("--pairs", action="store_true", help="two planted at once")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--cores", type=int, metavar="N", help="of its own to each run [default: all to all]")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="what each run printed and stored stays there")
    parser.add_argument("--table", action="store_true", help="print the table of FILE and run nothing")
    options = parser.parse_args()
    lines = options.file.read_bytes().splitlines() if options.file.exists() else []
    seen = [msgspec.json.decode(line, type=Seen) for line in lines]
    if not options.table:
        known = {s.name for s in seen}
        waiting = [d for d in chosen_defects(options) if "+".join(m.name for m in d) not in known]
        free = places(options.jobs, options.cores)

        def run_in_a_place(defect: Sequence[Mutant]) -> Seen:
            cores = free.get()
            try:
                return run(defect, options.minutes, options.device, cores, options.keep)
            finally:
                free.put(cores)

        with ThreadPoolExecutor(options.jobs) as threads, options.file.open("ab") as out:
            for done in as_completed([threads.submit(run_in_a_place, defect) for defect in waiting]):
                found = done.result()
                out.write(msgspec.json.encode(found) + b"\n")
                out.flush()
                seen.append(found)
                print(f"{found.outcome:9} {found.name}: {found.findings} findings, {found.end} s", flush=True)
    print(table(seen))
    return int(any(s.outcome == "wrong" for s in seen))


if __name__ == "__main__":
    sys.exit(main())
