"""The interpreter's tests and a short search against releases of Triton: `make versions`, or `python tests/triton_versions.py 3.8.0 ...`.

Each release gets a virtual environment under `.venv/triton/`, in which everything but triton comes from the environment that
runs this script. Exit code 0: every release passes; 1: one fails or is refused; the last lines say which and why.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELEASES = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")
PROBE = """
import sys
from flashverify.errors import FlashverifyError
from flashverify.interpreter import faithful
try:
    with faithful():
        pass
except FlashverifyError as error:
    sys.exit(str(error))
"""


def environment(release):
    """The python of the release's environment, made where there is none.

    Raises:
        LookupError: pip finds no such release for this Python.
    """
    folder = ROOT / ".venv" / "triton" / release
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, clear=True, with_pip=False, symlinks=True)
        ours = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        (ours / "everything_else.pth").write_text(
            f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n", encoding="utf-8"
        )
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
        done = run([*pip, "install", "--no-deps", f"triton=={release}"])
        if done.returncode:
            raise LookupError(f"it cannot be installed: {done.stdout.strip().splitlines()[-1]}")
        (folder / "ready").touch()
    return str(python)


def run(command, **variables):
    """Run to the end, with the output of both streams in `stdout`."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def judge(release, cases, seed):
    """(whether it passes, one line that says why)."""
    try:
        python = environment(release)
    except LookupError as error:
        return False, str(error)
    installed = run([python, "-c", "import triton; print(triton.__version__)"]).stdout.strip()
    if installed.split("+")[0] != release:
        return False, f"its environment has triton {installed}"
    probe = run([python, "-c", PROBE])
    if probe.returncode:
        return False, f"refused: {probe.stdout.strip().splitlines()[-1]}"
    tests = run([python, "-m", "pytest", "-q", "-n", "auto", "tests/interpreter"])
    summary = re.findall(r"^=*\s*(\d+ (?:passed|failed|skipped|error).*?)\s*=*$", tests.stdout, re.MULTILINE)
    out = ROOT / "out" / "versions" / release
    budget = ["--device", "cpu", "--max-cases", str(cases), "--minutes", "10", "--seed", str(seed)]
    search = run([python, "-m", "flashverify", "fuzz", *budget, "--out", str(out / f"run-{os.getpid()}")])
    for name, done in (("tests", tests), ("search", search)):
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.txt").write_text(done.stdout, encoding="utf-8")
    verdict = next((line for line in search.stdout.splitlines() if re.match(r"\W*(PASS|FAIL|NO VERDICT)", line)), "")
    words = (
        f"tests: {summary[-1] if summary else 'no summary'}; search: {verdict.strip() or f'exit {search.returncode}'}"
    )
    return tests.returncode == search.returncode == 0, words


def main():
    """Judge every release named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("releases", nargs="*", default=RELEASES, metavar="RELEASE")
    parser.add_argument("--cases", type=int, default=150, help="of the search [default: 150]")
    parser.add_argument("--seed", type=int, default=0, help="of the search [default: 0]")
    options = parser.parse_args()
    good = True
    for release in options.releases:
        passes, why = judge(release, options.cases, options.seed)
        good &= passes
        print(f"triton {release}: {'pass' if passes else 'FAIL'}; {why}", flush=True)
    return not good


if __name__ == "__main__":
    sys.exit(main())
