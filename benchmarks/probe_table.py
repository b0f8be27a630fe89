"""Declared against inferred, field by field, as a Markdown page.

    python benchmarks/probe_table.py [--seconds N] [SPEC...] > reports/probe.md

Each subject is probed by `flashverify probe`, by default those registered ones that run without a GPU. A probe reads nothing of a declaration
before it infers: what an author declares is only laid beside the answer, and keeps apart what is wrong outside of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from flashverify.subjects.registry import REGISTERED

_CUT = 60


def probed(spec: str, seconds: float) -> dict[str, Any]:
    """What the command prints as JSON."""
    command = (
        sys.executable,
        "-m",
        "flashverify",
        "probe",
        spec,
        "--device",
        "cpu",
        "--json",
        "--seconds",
        f"{seconds:g}",
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        return {"spec": spec, "error": done.stderr.strip()}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _cell(text: str) -> str:
    shown = text if len(text) <= _CUT else text[: _CUT - 3] + "..."
    return f"`{shown}`" if shown else "–"


def section(found: dict[str, Any]) -> list[str]:
    """The lines of one subject."""
    lines = [f"## {found['spec']}"]
    if "error" in found:
        return [*lines, found["error"].splitlines()[0], ""]
    judged, failed = found["judged"], len(found["failed"])
    lines += [
        f"{found['trials']} trials in {found['seconds']:g} s on {found['evidence']}; {judged} drawn cases of the inferred declaration, of which "
        f"{failed} raised or were wrong.",
        "",
        "| field | declared | inferred | |",
        "|---|---|---|---|",
    ]
    for field in found["fields"]:
        declared, inferred = _cell(field["declared"]), _cell(field["inferred"])
        lines.append(f"| {field['of']}.{field['name']} | {declared} | {inferred} | {field['verdict']} |")
    lines.append("")
    for form in found["forms"]:
        shown = form["form"] or "no form that was tried"
        lines.append(
            f"- {form['dtype']}: `{shown}` explains {form['fitted']} cases and fails on {len(form['failed'])} of {form['held_out']} others; "
            f"{len(form['refuted'])} other forms are refuted."
        )
    for suspect in found["suspects"]:
        declare = f" An author who means it declares `{suspect['declare']}`." if suspect["declare"] else ""
        lines.append(f"- Looks like a defect: {suspect['what']}: {suspect['sentence']}.{declare}")
    if found["silent"]:
        reasons = "; ".join(text.split(": ")[0] for text in found["silent"])
        lines.append(f"- Outside the declaration it did not raise and was wrong: {reasons}.")
    if found["undecided"]:
        lines.append(f"- Undecided: {'; '.join(found['undecided'])}.")
    return [*lines, ""]


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", metavar="SPEC")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each probe [default: 60]")
    options = parser.parse_args()
    specs = options.subjects or [entry.name for entry in REGISTERED if not entry.needs_gpu]
    print("# Declared against inferred\n")
    print(
        "`flashverify probe` on the registered subjects that run without a GPU, made by `python benchmarks/probe_table.py`. `held` is a "
        "declared value that nothing refuted and that trials alone cannot infer; `not asked` is a field that no trial is about. Fields with "
        "their defaults on both sides are left out.\n"
    )
    for spec in specs:
        print("\n".join(section(probed(spec, options.seconds))), flush=True)


if __name__ == "__main__":
    main()
