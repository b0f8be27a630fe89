"""The accuracy of our own kernels: what is counted, and that the page and its picture are those of the stored record."""

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import own_reports
import pytest
import torch
from accuracy_report.measuring import add_case, spacing, usual
from accuracy_report.page import IMAGE, PAGE, page
from accuracy_report.picture import picture
from accuracy_report.record import RATIO_OCTAVES, Kernel, Sizes, read

from flashverify import parse_case
from flashverify.adapters.torch_cpu import TORCH_CPU
from flashverify.subjects.interface import Forward

ROOT = Path(__file__).resolve().parents[2]
RECORD = next(file for name in ("h200", "cpu") if (file := ROOT / "reports" / name / "own/accuracy.json.xz").exists())
CASE = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=5 seq_k=7 dtype=fp32 regime=logits-1e2 scale=-1 seed=3")


@dataclasses.dataclass(frozen=True)
class Rounded:
    """torch's attention with an O that is rounded to fp16."""

    inner: object = TORCH_CPU

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def forward(self, problem):
        found = self.inner.forward(problem)
        return Forward(found.o.half().float(), found.lse, found.saved)


def sizes(*values):
    found = Sizes(RATIO_OCTAVES)
    found.add(np.array(values, np.float64), "fv1")
    return found


def test_quantiles_are_upper_ends_of_bins_and_never_above_the_worst():
    found = sizes(*[2.0**-8] * 98, 0.3, 0.9)
    assert (found.count, found.worst) == (100, 0.9)
    assert found.quantile(0.5) == 2.0**-7.75
    assert 0.3 <= found.quantile(0.99) <= 0.3 * 2**0.25
    assert found.quantile(1.0) == 0.9
    assert sizes(0.0, 1e-30).quantile(1.0) == 0.0
    assert math.isnan(sizes().quantile(0.5))
    assert sum(found.shares(2)) == pytest.approx(1.0)


def test_two_processes_count_as_one():
    one, other = Kernel("k", ""), Kernel("k", "", evidence="cpu", raised=1, raised_first="x")
    add_case(one, TORCH_CPU, "hard", CASE)
    add_case(other, TORCH_CPU, "hard", CASE)
    alone = {(row.output, row.ratios.count) for row in one.rows}
    one.merge(other)
    assert {(row.output, row.ratios.count // 2) for row in one.rows} == alone
    assert (one.cases, one.raised, one.evidence) == (2, 1, "cpu")


def test_an_ulp_is_that_of_the_exact_value_and_of_the_dtype():
    found = spacing(np.array([1.0, 1.99, -4.0, 0.0, 2.0**-30]), torch.float16)
    assert found.tolist() == [2.0**-10, 2.0**-10, 2.0**-8, 2.0**-24, 2.0**-24]


def test_a_kernel_that_rounds_once_too_often_is_outside():
    right, wrong = Kernel("right", ""), Kernel("wrong", "")
    add_case(right, TORCH_CPU, "hard", CASE)
    add_case(wrong, Rounded(), "hard", CASE)
    assert not any(row.outside for row in right.rows)
    row = wrong.row("fp32", "o", "hard")
    assert row.outside > 0
    assert row.outside_case == row.ratios.case
    assert row.ulps.worst > 100


def test_kernels_that_are_compiled_get_the_processes_that_are_left():
    specs = ("bundled", "bundled-decode", "sdpa-flash")
    assert own_reports.shared_out(specs, 2) == dict.fromkeys(specs, 1)
    assert own_reports.shared_out(specs, 9) == {"bundled": 5, "bundled-decode": 3, "sdpa-flash": 1}


def test_the_usual_case_has_normal_values_the_usual_scale_and_the_same_shape():
    found = usual(CASE)
    assert (found.values.regime, found.scale, found.shape_q) == ("normal", None, CASE.shape_q)


def test_the_page_and_its_picture_are_those_of_the_stored_record():
    record = read(RECORD)
    again = "run benchmarks/own_reports.py --from " + str(RECORD.relative_to(ROOT))
    assert (ROOT / "docs" / PAGE).read_text(encoding="utf-8") == page(record), again
    assert (ROOT / "docs" / IMAGE).read_text(encoding="utf-8") == picture(record), again
    assert ("This is a record of a CPU" in page(record)) == (record.device == "cpu")


@pytest.mark.slow
def test_the_command_measures_and_writes_everything(tmp_path):
    words = ("--device", "cpu", "--subject", "torch-cpu", "--minutes", "0.02", "--processes", "1")
    places = ("--out", str(tmp_path / "own"), "--docs", str(tmp_path / "docs"))
    script = str(ROOT / "benchmarks/own_reports.py")
    done = subprocess.run([sys.executable, script, *words, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = read(tmp_path / "own/accuracy.json.xz")
    assert record.kernels[0].cases > 0
    assert {row.group for row in record.kernels[0].rows} == {"usual", "hard"}
    assert "## torch-cpu" in (tmp_path / "docs/accuracy.md").read_text()
    assert (tmp_path / "docs/images/accuracy.svg").read_text().startswith("<svg ")
