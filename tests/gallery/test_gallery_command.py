"""`flashverify gallery` on a fake package on disk: its verdict, its table, and its errors."""

import hashlib
import json
import re

import pytest
from click.testing import CliRunner

from flashverify.cli import main
from flashverify.errors import NoVerdictError
from flashverify.gallery import judging
from flashverify.gallery.place import TUTORIAL, VERSION, module_of_file, wanted_version
from flashverify.gallery.selection import choose, use_tutorial, version_of
from tests.gallery.conftest import FORWARD


def run(*arguments):
    return CliRunner().invoke(main, ["gallery", *map(str, arguments)])


@pytest.mark.slow
def test_a_package_on_disk_is_judged_and_the_table_says_what_was_found(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHVERIFY_WORKERS", "1")
    fake(FORWARD.replace("v.double()", "2 * v.double()"))

    result = run("fasterkernels:forward", "--max-cases", 5, "--out", tmp_path / "out", "--json")

    assert result.exit_code == 1, result.output
    (row,) = json.loads((tmp_path / "out" / "gallery.json").read_text())
    table = (tmp_path / "out" / "gallery.md").read_text()
    assert row["cases"] >= 5
    assert row["findings"]
    assert "| fasterkernels | 0.2.0 | MIT | `forward`" in table
    assert "flashverify replay 'fv1 " in table


def test_a_clean_search_is_a_row_without_findings(fake, tmp_path, monkeypatch):
    fake()
    said = {"verdict": "PASS: no finding", "exit_code": 0, "findings": [], "worst": {"o": "0x1p-1"}}
    said["summary"] = {"cases": 200, "covering": 150, "seconds": 9.0}
    monkeypatch.setattr(judging, "_fuzz", lambda *_: said)

    result = run("fasterkernels:forward", "--out", tmp_path / "out")

    assert result.exit_code == 0
    assert "| 200 | 150 | o 0.5 | PASS: no finding |" in (tmp_path / "out" / "gallery.md").read_text()


def test_a_second_call_keeps_the_rows_of_the_first_and_replaces_its_own(fake, tmp_path, monkeypatch):
    fake()
    said = {"verdict": "PASS: no finding", "exit_code": 0, "findings": [], "worst": {}, "summary": {"cases": 1}}
    places = []

    def fuzz(spec, budget, device, out):
        places.append(out.name)
        out.mkdir()
        return said

    monkeypatch.setattr(judging, "_fuzz", fuzz)
    run("fasterkernels:forward", "fasterkernels:paged", "--out", tmp_path)
    said["summary"] = {"cases": 2}

    run("fasterkernels:paged", "--out", tmp_path)

    rows = json.loads((tmp_path / "gallery.json").read_text())
    assert [(row["kernel"], row["cases"]) for row in rows] == [("forward", 1), ("paged", 2)]
    assert places == ["fasterkernels-forward", "fasterkernels-paged", "fasterkernels-paged-2"]


def test_a_folder_whose_table_is_damaged_is_refused(fake, tmp_path):
    (tmp_path / "gallery.json").write_text("{}")

    result = run("fasterkernels:forward", "--out", tmp_path)

    assert result.exit_code == 2
    assert "is not accepted: gallery.json in it is no table" in result.output


@pytest.mark.parametrize(
    ("budget", "options"),
    [
        (judging.Budget(minutes=0.5), ("--minutes", "0.5")),
        (judging.Budget(cases=7), ("--max-cases", "7")),
        (judging.Budget(minutes=2, cases=7), ("--minutes", "2", "--max-cases", "7")),
    ],
)
def test_the_budget_is_that_of_the_search(budget, options):
    assert budget.options() == options


def test_what_cannot_be_fetched_is_a_row_and_no_verdict(shelf, tmp_path, monkeypatch):
    def install(release):
        raise NoVerdictError(f"{release.name} {wanted_version(release)} was not fetched")

    monkeypatch.setattr(judging, "install", install)
    monkeypatch.setenv(VERSION + "FASTERKERNELS", "")  # restored at the end

    result = run("fasterkernels:forward", "--version", "fasterkernels==0.1.9", "--out", tmp_path / "out")

    assert result.exit_code == 3
    assert "not judged: fasterkernels 0.1.9 was not fetched" in (tmp_path / "out" / "gallery.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nix"], "NAME='nix' is not in the gallery: one of .*vllm"),
        (["vllm:nix"], "NAME='vllm:nix' is not in the gallery: one of vllm:prefill"),
        (["vllm", "--version", "vllm=1"], "--version 'vllm=1' is not accepted: NAME==VERSION"),
        (
            ["vllm", "--version", "sglang==1"],
            "--version 'sglang==1' names no fetched release that is judged: one of vllm",
        ),
        (["vllm", "--device", "tpu"], "device='tpu' is not accepted: cpu or cuda"),
        (["--tutorial", "nothing.py"], "--tutorial 'nothing.py' is not accepted: a Python file"),
        (["tutorial"], "--tutorial is missing"),
    ],
)
def test_bad_input_gets_one_clear_error(arguments, message, monkeypatch):
    monkeypatch.delenv(TUTORIAL, raising=False)
    result = run(*arguments)

    assert result.exit_code == 2
    assert result.output.count("error") == 1
    assert re.search(message, result.output), result.output


def test_the_version_of_the_tutorial_is_the_hash_of_its_file(tmp_path, monkeypatch):
    monkeypatch.delenv(TUTORIAL, raising=False)
    file = tmp_path / "06-fused-attention.py"
    file.write_bytes(b"attention = None\n")

    use_tutorial(str(file))
    (chosen,) = choose(["tutorial"], tutorial=True)

    assert version_of(chosen[0]) == hashlib.sha256(b"attention = None\n").hexdigest()[:16]
    assert module_of_file().attention is None
    monkeypatch.delenv(TUTORIAL)
