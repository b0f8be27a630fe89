import subprocess
import sys

import pytest

from flashverify.campaign.commands.campaign import campaign_config, run_campaign
from flashverify.campaign.commands.settings import Settings
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.case.text import parse_case

WRONG = """
from flashverify.subjects import Forward, Supports
from flashverify.adapters.torch_cpu import TORCH_CPU


class Wrong:
    name = "wrong"
    supports = Supports(dtypes=("fp32",), masks=("causal",), layouts=("bhsd",), backward=False, non_finite=False)

    def __getattr__(self, name):
        return getattr(TORCH_CPU, name)

    def forward(self, problem):
        right = TORCH_CPU.forward(problem)
        return Forward(right.o * 1.25 if right.o.shape[2] >= 3 else right.o, right.lse, right.saved)


WRONG = Wrong()
"""


@pytest.mark.slow
def test_a_wrong_kernel_is_found_shrunk_and_confirmed_by_the_second_oracle(tmp_path, monkeypatch):
    (tmp_path / "wrong_kernel.py").write_text(WRONG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    given = {"kind": "fuzz", "subjects": ("wrong_kernel:WRONG",), "out": tmp_path / "run", "device": "cpu"}
    summary = Engine(CampaignConfig(**given, workers=1, seed=1, max_cases=4, shrink_seconds=8.0)).run()

    run = open_run(tmp_path / "run")
    assert (summary.exit_code, summary.stopped) == (1, "budget")
    finding = next(f for f in run.findings if (f.record.key.check, f.record.key.output) == ("accuracy", "o"))
    record = finding.record
    case = parse_case(record.case)
    assert case.seq_q == 3
    assert case.batch * case.heads_q == 1
    assert (record.confirmation.failed, record.confirmation.agrees) == (3, True)
    assert "declared" in run.record.form["wrong"] or "assumed" in run.record.form["wrong"]
    script = subprocess.run([sys.executable, finding.path / "repro.py"], capture_output=True, text=True, cwd=tmp_path)
    assert (script.returncode, script.stderr) == (1, "")
    assert script.stdout.startswith("fail accuracy o bound")


@pytest.mark.slow
def test_numerics_reach_the_workers_the_header_and_the_evidence(tmp_path):
    settings = Settings(subject=("bundled",), workers=1, out=str(tmp_path / "r"), device="cpu", numerics="h100+2ulp")
    config = campaign_config("run", settings, cases=("fv1 seq_q=5 seq_k=7 dim_qk=16 dim_v=16 backward=no",))

    summary = run_campaign(config, quiet=True)

    stored = open_run(tmp_path / "r")
    assert (summary.exit_code, stored.record.numerics) == (0, "h100+2ulp")
    assert [result.evidence for result in stored.results()] == ["interpreter (h100+2ulp)"]
    assert "architecture=sm_90" in stored.record.form["bundled"]
