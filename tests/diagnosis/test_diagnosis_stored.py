"""What a campaign stores and shows of a diagnosis, and the names that the bank of mutants declares."""

import html
import json

import pytest

from flashverify.campaign.engine import Engine
from flashverify.campaign.schedule import CampaignConfig
from flashverify.diagnosis.semantics import NAMES
from flashverify.mutants.bank import CONTROLS, CURATED
from flashverify.report import write_report

WRONG = """
import math
from dataclasses import replace

import torch

from flashverify.subjects import Forward
from flashverify.subjects.torch_cpu import TORCH_CPU


class Wrong:
    supports = replace(TORCH_CPU.supports, dtypes=("fp32",), backward=False)

    def __init__(self, name, change):
        self.name, self.change = name, change

    def __getattr__(self, name):
        return getattr(TORCH_CPU, name)

    def forward(self, problem):
        right = TORCH_CPU.forward(problem)
        return Forward(*self.change(right.o, right.lse), right.saved)


BASE = Wrong("base", lambda o, lse: (o, lse / math.log(2.0)))
NOISE = Wrong("noise", lambda o, lse: (o, lse + 0.125 * torch.sin(1e3 * lse)))
"""
CASES = ("fv1 seq_q=3 seq_k=4 dim_qk=8 dim_v=8 dtype=fp32 backward=no",)
SENTENCE = "The LSE is returned in base 2, where the natural one is declared, in the LSE, not in O."


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a campaign over a nameable and an unnameable defect."""
    folder = tmp_path_factory.mktemp("diagnosed")
    with pytest.MonkeyPatch.context() as patch:
        (folder / "wrong_lse.py").write_text(WRONG)
        patch.chdir(folder)
        subjects = ("wrong_lse:BASE", "wrong_lse:NOISE")
        given = {"kind": "run", "subjects": subjects, "out": folder / "run", "device": "cpu", "workers": 1}
        assert Engine(CampaignConfig(**given, cases=CASES, shrink=False, repeats=1)).run().exit_code == 1
    return folder / "run"


def stored(run, subject):
    """The records of a subject's findings, as they lie on disk."""
    records = [json.loads(path.read_text()) for path in sorted(run.glob("findings/*/finding.json"))]
    return [record for record in records if record["key"]["subject"] == subject]


def test_a_finding_stores_its_diagnosis(run):
    (record,) = [record for record in stored(run, "base") if record["key"]["check"] == "accuracy"]
    assert record["diagnosis"]["name"] == "lse-base-2"
    assert record["diagnosis"]["sentence"] == SENTENCE
    assert record["diagnosis"]["place"].startswith("lse: 3 of 3 elements are wrong")


def test_noise_is_stored_with_a_place_and_no_name(run):
    records = [record for record in stored(run, "noise") if record["key"]["check"] == "accuracy"]
    assert records
    for record in records:
        assert record["diagnosis"].get("name", "") == ""
        assert record["diagnosis"]["place"].startswith("lse: ")


def test_every_report_shows_the_diagnosis(run):
    page, text, data = (path.read_text() for path in write_report(run))
    unnamed = "No known wrong semantics explains it."
    for shown in (html.unescape(page), text):
        assert shown.count(SENTENCE) == 1
        assert unnamed in shown
    said = [finding["diagnosis"] for finding in json.loads(data)["findings"]]
    assert {each["name"] for each in said if each} == {"lse-base-2", ""}


def test_declared_semantics_are_ones_that_can_be_named():
    declared = {mutant.name: mutant.semantics for mutant in CURATED if mutant.semantics}
    assert len(declared) >= 80
    assert {name: semantics for name, semantics in declared.items() if semantics not in NAMES} == {}


def test_legitimate_behaviour_declares_no_wrong_semantics():
    assert CONTROLS
    assert [mutant.name for mutant in CONTROLS if mutant.semantics] == []
