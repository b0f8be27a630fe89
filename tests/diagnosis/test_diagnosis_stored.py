"""What a campaign stores and shows of a diagnosis, and the names that the bank of mutants declares."""

import html
import json

import pytest

from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.diagnosis.catalogue import NAMES
from flashverify.mutants.bank import CONTROLS, CURATED
from flashverify.report import write_report

WRONG = """
import math
from dataclasses import replace

from flashverify.subjects import Forward
from flashverify.adapters.torch_cpu import TORCH_CPU


class Wrong:
    name = "wrong"
    supports = replace(TORCH_CPU.supports, dtypes=("fp32",), backward=False)

    def __getattr__(self, name):
        return getattr(TORCH_CPU, name)

    def forward(self, problem):
        right = TORCH_CPU.forward(problem)
        return Forward(right.o, right.lse / math.log(2.0), right.saved)


WRONG = Wrong()
"""
CASES = ("fv1 seq_q=3 seq_k=4 dim_qk=8 dim_v=8 dtype=fp32 backward=no",)
SENTENCE = "The LSE is returned in base 2, where the natural one is declared, in the LSE, not in O."


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a campaign over a defect that has a name."""
    folder = tmp_path_factory.mktemp("diagnosed")
    with pytest.MonkeyPatch.context() as patch:
        (folder / "wrong_lse.py").write_text(WRONG, encoding="utf-8")
        patch.chdir(folder)
        given = {"kind": "run", "subjects": ("wrong_lse:WRONG",), "out": folder / "run", "device": "cpu", "workers": 1}
        assert Engine(CampaignConfig(**given, cases=CASES, shrink=False, repeats=1)).run().exit_code == 1
    return folder / "run"


@pytest.mark.slow
def test_a_finding_stores_its_diagnosis(run):
    (path,) = run.glob("findings/*/finding.json")
    diagnosis = json.loads(path.read_text(encoding="utf-8"))["diagnosis"]
    assert (diagnosis["name"], diagnosis["sentence"]) == ("lse-base-2", SENTENCE)
    assert diagnosis["place"].startswith("lse: 3 of 3 elements are wrong")


@pytest.mark.slow
def test_every_report_shows_the_diagnosis(run):
    page, text, data = (path.read_text(encoding="utf-8") for path in write_report(run))
    for shown in (html.unescape(page), text):
        assert shown.count(SENTENCE) == 1
        assert shown.count("lse: 3 of 3 elements are wrong") == 1
    (finding,) = json.loads(data)["findings"]
    assert (finding["diagnosis"]["name"], finding["diagnosis"]["sentence"]) == ("lse-base-2", SENTENCE)


def test_declared_semantics_are_ones_that_can_be_named():
    declared = {mutant.name: mutant.semantics for mutant in CURATED if mutant.semantics}
    assert len(declared) >= 80
    assert {name: semantics for name, semantics in declared.items() if semantics not in NAMES} == {}


def test_legitimate_behaviour_declares_no_wrong_semantics():
    assert CONTROLS
    assert [mutant.name for mutant in CONTROLS if mutant.semantics] == []
