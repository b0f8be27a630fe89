"""The tests as other machines would run them: `make machines`, or `python tests/machines.py [SETTING ...] [--all] [--tests PATH ...]`.

A setting is one thing that differs between machines: the kernel that NumPy's BLAS chooses, vectors, threads, cores, the order
of the tests, locale, time zone, terminal, home, network. Each runs the tests that it may change: those of numbers, those of
texts and files, or both; `--all` runs the whole suite under each. A setting that this machine cannot take is skipped, with the
reason. Exit code 0: every test passes under every setting; 1: one fails; logs are under `out/machines/`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from conftest import numpy_vectors

ROOT = Path(__file__).parents[1]
NUMBERS = (
    *(
        "tests/interpreter",
        "tests/judge",
        "tests/subjects",
        "tests/oracles",
        "tests/test_api.py",
        "tests/test_truth.py",
    ),
    *("tests/case/test_case_values.py", "tests/checks/test_strict.py", "tests/checks/test_engine.py"),
    *("tests/kernels/test_kernels_masks.py", "tests/numerics/test_bounds_clean.py", "tests/algorithms"),
)
TEXTS = (
    *(
        "tests/test_cli.py",
        "tests/report",
        "tests/case/test_case_text.py",
        "tests/campaign/test_store.py",
        "tests/bench",
    ),
    *("tests/campaign/test_settings.py", "tests/mutants/test_bank.py", "tests/xray/test_command.py", "tests/judge"),
)
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
BLAS = "from conftest import blas_kernel; print(blas_kernel())"
TORCH = "import torch; print(torch.backends.cpu.get_cpu_capability())"
MKL = "import torch; print(torch.backends.mkl.is_available())"


@dataclass(frozen=True)
class Setting:
    """One difference between machines.

    Attributes:
        name: of the table and of the log.
        variables: of the environment.
        options: of pytest.
        tests: those that it may change.
        probe: Python whose output under `variables` must be `expected`, or the processor cannot run it.
        cores: how many may be used; 0 is all.
    """

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    tests: tuple[str, ...] = NUMBERS
    probe: str = ""
    expected: str = ""
    cores: int = 0


def comma_locale():
    """A locale that is installed here and writes a decimal comma, or an empty text."""
    listed = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.split()
    return next((name for name in listed if name.startswith(("de_", "fr_", "es_", "it_", "pl_", "ru_"))), "")


def settings():
    """Every setting, in the order of the table."""
    both = tuple(dict.fromkeys(NUMBERS + TEXTS))
    # AVX2 is left: without it torch and NumPy differ in the same way once more.
    wide = " ".join(name for name in numpy_vectors() if name != "X86_V3")
    comma = comma_locale()
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return [
        Setting("as-it-is"),
        *(
            Setting(f"blas-{core}", {"OPENBLAS_CORETYPE": core}, probe=BLAS, expected=f"OpenBLAS {core}")
            for core in ("Haswell", "SkylakeX", "Sandybridge", "Zen")
        ),
        Setting("torch-default", {"ATEN_CPU_CAPABILITY": "default"}, probe=TORCH, expected="DEFAULT"),
        Setting("torch-avx2", {"ATEN_CPU_CAPABILITY": "avx2"}, probe=TORCH, expected="AVX2"),
        Setting("mkl-compatible", {"MKL_CBWR": "COMPATIBLE"}, probe=MKL, expected="True"),
        Setting(
            "numpy-avx2",
            {"NPY_DISABLE_CPU_FEATURES": wide},
            probe="from conftest import numpy_vectors; print(*numpy_vectors())"
            if wide
            else "print('no wider vectors')",
            expected="X86_V3",
        ),
        *(Setting(f"threads-{n}", dict.fromkeys(THREADS, str(n))) for n in (1, 2, 8)),
        Setting("one-core", cores=1),
        *(Setting(f"shuffled-{seed}", options=("--shuffle", str(seed)), tests=both) for seed in (1, 2, 3)),
        Setting("hash-seed", {"PYTHONHASHSEED": "12345"}, tests=both),
        Setting("locale-C", {"LC_ALL": "C", "LANG": "C", **plain}, tests=TEXTS),
        Setting(
            "locale-comma",
            {"LC_ALL": comma, **plain},
            tests=TEXTS,
            probe="import locale; locale.setlocale(locale.LC_ALL, ''); print(locale.localeconv()['decimal_point'])",
            expected=",",
        ),
        Setting("time-zone", {"TZ": "Pacific/Chatham"}, tests=TEXTS),
        Setting("narrow-terminal", {"COLUMNS": "40", "TERM": "dumb", "NO_COLOR": "1"}, tests=TEXTS),
        Setting("wide-terminal", {"COLUMNS": "200", "TERM": "xterm-256color", "FORCE_COLOR": "1"}, tests=TEXTS),
        Setting("no-home", {"HOME": "/dev/null/home", "XDG_CACHE_HOME": "/dev/null/cache"}, tests=TEXTS),
        Setting("offline", options=("--offline",), tests=both),
        Setting("stock-interpreter", options=("--stock",), tests=("tests/kernels",)),
    ]


def run(command, variables, cores=0):
    """Run to the end on at most so many cores, both streams in `stdout`."""
    allowed = sorted(os.sched_getaffinity(0))[: cores or None]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path[1:], str(ROOT / "tests")]), **variables},
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def unable(setting):
    """Why this machine cannot take the setting, or an empty text."""
    if not setting.probe:
        return ""
    found = (run([sys.executable, "-c", setting.probe], setting.variables).stdout.strip().splitlines() or ["nothing"])[
        -1
    ]
    return "" if found == setting.expected else f"it would need {setting.expected!r}; this machine has {found!r}"


def judge(setting, options):
    """(whether it passes, the line of the table)."""
    reason = unable(setting)
    if reason:
        return True, f"{setting.name:18} skipped: {reason}"
    tests = options.tests or (["tests"] if options.all else setting.tests)
    tier = [] if options.all or options.tests else ["-m", "not slow"]
    processes = ["-n", str(setting.cores or options.processes), "--dist", "worksteal"]
    command = [sys.executable, "-m", "pytest", "-q", *processes, *tier, *setting.options, *tests]
    begun = time.monotonic()
    done = run(command, setting.variables, setting.cores)
    seconds = time.monotonic() - begun
    log = ROOT / "out" / "machines" / f"{setting.name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout, encoding="utf-8")
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout.splitlines()[-1])}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    if done.returncode and not failed:
        return False, f"{setting.name:18} no verdict, exit {done.returncode}: {log}"
    return not failed, f"{setting.name:18} {counts.get('passed', 0):7} {failed:7} {seconds:8.0f}"


def main():
    """Run the settings named, or all."""
    known = settings()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "settings", nargs="*", metavar="SETTING", help="the head of a setting's name [default: every one]"
    )
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="these tests under each setting")
    parser.add_argument("--all", action="store_true", help="the whole suite under each setting")
    parser.add_argument("--processes", default="auto", help="of pytest [default: auto]")
    parser.add_argument("--list", action="store_true", help="the settings, and which cannot be taken here")
    options = parser.parse_args()
    for word in options.settings:
        if not any(setting.name.startswith(word) for setting in known):
            parser.error(f"no setting begins with {word!r}: {', '.join(setting.name for setting in known)}")
    chosen = [s for s in known if not options.settings or s.name.startswith(tuple(options.settings))]
    if options.list:
        print(*(f"{setting.name:18} {unable(setting)}".rstrip() for setting in chosen), sep="\n")
        return 0
    print(f"{'setting':18} {'passed':>7} {'failed':>7} {'seconds':>8}", flush=True)
    good = True
    for setting in chosen:
        passes, line = judge(setting, options)
        good &= passes
        print(line, flush=True)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
