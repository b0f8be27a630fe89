"""Causes of defects that are planted in the bundled kernels: one defect is one finding, two are two."""

import pytest

from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.case.text import parse_case
from flashverify.mutants import build_mutant
from flashverify.mutants.bank import CURATED

MUTANTS = {mutant.name: mutant for mutant in CURATED}
SIZES = "seq_q=33 seq_k=40 dim_qk=16 dim_v=16"
DTYPES = ("fp32", "fp16", "bf16")


def plant(folder, *names):
    """The subject with these defects in one copy of the kernels."""
    first, *others = (MUTANTS[name] for name in names)
    spec = build_mutant(first, folder)
    for mutant in others:
        file = folder / f"mutant_{first.name}" / mutant.file
        text = file.read_text(encoding="utf-8")
        assert text.count(mutant.before) == 1
        file.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    return spec


def findings(tmp_path, spec, cases):
    """What a campaign over the cases finds, and every bucket that its results show."""
    given = {"kind": "run", "subjects": (spec,), "out": tmp_path / "run", "device": "cpu", "workers": 1}
    summary = Engine(CampaignConfig(**given, cases=cases, repeats=1, shrink_seconds=20.0)).run()
    run = open_run(tmp_path / "run")
    shown = {v.key(r.subject, parse_case(r.case).dtype) for r in run.results() for v in r.failures}
    assert summary.findings == len(run.findings)
    return [finding.record for finding in run.findings], shown


@pytest.mark.slow
@pytest.mark.thorough
def test_a_wrong_base_of_the_lse_over_dtypes_and_outputs_is_one_finding(tmp_path):
    cases = tuple(f"fv1 {SIZES} dtype={dtype} seed=3" for dtype in DTYPES)
    spec = plant(tmp_path, "lse_in_the_wrong_base")
    (record,), shown = findings(tmp_path, spec, (*cases, f"fv1 {SIZES} dtype=fp32 precision=tf32"))

    assert (record.key.output, record.key.dtype, record.diagnosis.name) == ("lse", "fp32", "lse-base-2")
    assert {record.key, *(folded.key for folded in record.folded)} == shown
    assert {"lse", "dq", "dk", "dv"} <= {key.output for key in shown}
    assert {key.dtype for key in shown} == set(DTYPES)


@pytest.mark.thorough
def test_a_loud_defect_of_the_mask_does_not_hide_a_missing_scale_of_dk(tmp_path):
    causal = tuple(f"fv1 {SIZES} dtype={dtype} causal=bottom-right seed=3" for dtype in DTYPES[1:])
    spec = plant(tmp_path, "causal_off_by_one", "dk_without_scale")
    records, _ = findings(tmp_path, spec, (*causal, f"fv1 {SIZES} dtype=fp32 seed=4"))

    names = {record.diagnosis.name: record for record in records if record.diagnosis is not None}
    assert {"causal-one-key-more", "gradient-without-scale"} <= names.keys()
    scale = names["gradient-without-scale"]
    assert {key.output for key in (scale.key, *(folded.key for folded in scale.folded))} == {"dk"}
    assert len(records) == 2
