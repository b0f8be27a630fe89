"""Cases a second of a search on a GPU, over time: with workers that compile what they launch, and with processes that compile ahead.

    python benchmarks/gpu_campaign.py [--subject SPEC]... [--seconds N] [--workers N] [--modes each,ahead,again] [--no-mps] [--json FILE]

Each subject is searched once a mode, in one sitting, with the same seed and every check of a search:

    each    workers compile what they launch, with an empty cache of kernels
    ahead   as many processes compile ahead of the workers, with another empty cache
    again   the same with the cache that `ahead` left, and another seed

A subject that torch traces is compiled by the workers in each of the modes; with `ahead` and `again` each of them keeps to kinds that it has
compiled, as a search does. `--subject flex` is FlexAttention as torch compiles it; give it 240 seconds and look at the rate from the
120th second on, at the share `compiling`, and at `put off` beside the cases.

The workers share the GPU by NVIDIA's Multi-Process Service where that starts, as those of `flashverify fuzz` do; `--no-mps` leaves it out.
Without it 14 workers judge less than half as many cases a second (`gpu_sharing.py --mps`).

Per interval of ten seconds: cases a second, kernels compiled. At the end: compiled kernels per thousand cases, in all and after two
minutes, and where the time of the workers went. The findings of a search are printed, and stored beside the file of `--json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from flashverify.campaign.commands.where import default_workers
from flashverify.campaign.environment import resolve_device
from flashverify.campaign.kernel_cache import CACHE_VARIABLE, torch_environment
from flashverify.campaign.store.stats import read_stats
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.judge.record import FindingRecord

MODES = ("each", "ahead", "again")
_NAMED = {"flex": f"{os.path.relpath(Path(__file__).with_name('flex_subject.py'))}:FLEX"}
"""Short names of subjects that only this script has."""


def configured(spec: str, mode: str, cache: Path, out: Path, options: argparse.Namespace) -> CampaignConfig:
    """One search: the workers share the GPU as those of `flashverify fuzz` do."""
    return CampaignConfig(
        kind="fuzz",
        subjects=(_NAMED.get(spec, spec),),
        out=out,
        device="cuda",
        workers=options.workers,
        compilers=0 if mode == "each" else options.compilers or options.workers,
        seconds=options.seconds,
        seed=options.seed + (mode == "again"),
        corpus=True,
        case_limit=120.0,
        explain_seconds=60.0,
        mps=options.mps and options.workers > 1,
        environment=torch_environment(str(cache), {})
        | {CACHE_VARIABLE: str(cache), "TRITON_STORE_BINARY_ONLY": "0" if mode == "each" else "1"},
    )


def search(spec: str, mode: str, cache: Path, options: argparse.Namespace) -> dict[str, object]:
    """One search, and what it says of itself."""
    out = Path(tempfile.mkdtemp(prefix=f"gpu-campaign-{mode}-"))
    row = measured(configured(spec, mode, cache, out, options))
    if options.json and row["findings"]:  # finding.json and repro.py of each, in one file
        name = f"{options.json.with_suffix('')}-{len(list(options.json.parent.glob('*.tar.gz')))}"
        shutil.make_archive(name, "gztar", out / "findings")
    shutil.rmtree(out, ignore_errors=True)
    return {"subject": spec, "mode": mode, **row}


def measured(config: CampaignConfig) -> dict[str, object]:
    """What a search found, and its figures."""
    engine = Engine(config)
    summary = engine.run()
    stats = msgspec.to_builtins(read_stats(config.out))
    return {
        "findings": [msgspec.to_builtins(record) for record in engine.tally.findings()],
        "restarts": summary.restarts,
        "first_error": engine.tally.first_error,
        "stats": {name: value for name, value in stats.items() if name != "cache"},
    }


def intervals(timeline: list[list[float]]) -> list[tuple[float, float, int]]:
    """(seconds, cases a second, kernels compiled) of each interval."""
    found = []
    for (begun, cases, compiled), (ended, more, now) in itertools.pairwise(timeline):
        found.append((ended, (more - cases) / max(ended - begun, 1e-9), int(now - compiled)))
    return found


def show(row: dict[str, object]) -> None:
    """One search as text."""
    stats = row["stats"]
    assert isinstance(stats, dict)
    rate = stats["cases"] / max(stats["seconds"], 1e-9)
    print(f"{row['subject']} {row['mode']}: {stats['cases']} cases, {rate:.1f}/s in {stats['seconds']:.0f} s")
    print("  " + "  ".join(f"{at:.0f}s {speed:.1f}/s +{new}" for at, speed, new in intervals(stats["timeline"])))
    print(
        f"  compiled {stats['compiled']} ({stats['compiled_by_workers']} by workers, {stats['traced']} functions by torch), {stats['per_thousand_cases']} per thousand cases, "
        f"later {stats['later_per_thousand_cases']}; kinds {stats['kinds']}, put off {stats['put_off']}, dropped {stats['dropped']}, "
        f"cache {stats['cache_bytes'] / 2**20:.0f} MiB"
    )
    print(f"  shares {stats['shares']}; MPS {stats.get('mps', False)}; restarts {row['restarts']} {row['first_error']}")
    findings = row["findings"]
    assert isinstance(findings, list)
    for record in findings:
        print(finding_text(msgspec.convert(record, FindingRecord)))
    sys.stdout.flush()


def finding_text(found: FindingRecord) -> str:
    """One finding as text."""
    confirmed = found.confirmation
    return "\n".join(
        (
            f"  finding, {found.count} cases, failed {confirmed.failed} of {confirmed.repeats} fresh runs:",
            f"    {found.verdict.check}: {found.verdict.message}",
            f"    minimal {found.case}",
            f"    first   {found.first}",
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", action="append")
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--workers", type=int, default=default_workers("cuda"))
    parser.add_argument(
        "--compilers", type=int, default=0, help="processes that compile ahead; 0 is as many as workers"
    )
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--mps", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    modes = options.modes.split(",")
    if unknown := set(modes) - set(MODES):
        parser.error(f"--modes={','.join(sorted(unknown))} is not accepted: {','.join(MODES)}")
    resolve_device("cuda")
    rows = []
    with tempfile.TemporaryDirectory(prefix="gpu-campaign-kernels-") as kernels:
        for number, spec in enumerate(options.subject or ["bundled"]):
            for mode in modes:
                cache = Path(kernels) / f"{number}-{'each' if mode == 'each' else 'ahead'}"
                rows.append(search(spec, mode, cache, options))
                show(rows[-1])
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
