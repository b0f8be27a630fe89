"""`run`, `report` and `compare` write what a CI reads; a corpus is kept between runs."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from flashverify import cli
from flashverify.campaign import toolkit
from flashverify.campaign.corpus.kept import keep_cases, kept_cases, merge_corpora
from flashverify.campaign.protocol import Batch, Chunk
from flashverify.errors import ConfigError
from tests.campaign.notes import following, schedule
from tests.report.synthetic import explained, failing, result, stats, write_run

FAKES = Path(__file__).resolve().parents[1] / "campaign"


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.setattr(toolkit, "BUNDLED", "fake_toolkit:toolkit")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def call(*arguments):
        return CliRunner().invoke(cli.main, [str(each) for each in arguments])

    return call


@pytest.mark.slow
def test_a_run_begins_with_the_kept_cases_and_writes_everything_in_github(call, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "corpus.txt").write_text("# mine\nfv1 seq_k=3\n\nfv1 seq_q=3\n")
    files = {name: tmp_path / "out" / name for name in ("junit", "sarif", "comment", "badge")}
    options = [
        "--max-cases",
        "8",
        "--device",
        "cpu",
        "--workers",
        "1",
        "--no-report",
        "--corpus",
        "corpus.txt",
        "--out",
        "r",
        "--json",
    ]

    done = call("run", "--subject", "tail", *options, *(w for name in files for w in (f"--{name}", files[name])))

    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout)["exit_code"] == 1
    assert "::error file=tail.py,line=1,title=The logits are <not> scaled::" in done.stderr
    assert (tmp_path / "summary.md").read_text().startswith("<!-- flashverify -->\n# ❌ 1 finding")
    assert ElementTree.parse(files["junit"]).getroot().find(".//failure") is not None
    assert json.loads(files["sarif"].read_bytes())["runs"][0]["results"][0]["ruleId"] == "accuracy/bound"
    assert json.loads(files["badge"].read_bytes())["message"] == "1 finding"
    judged = [json.loads(line)["case"] for line in (tmp_path / "r/results.jsonl").read_text().splitlines()]
    assert judged[:3] == ["fv1 seq_k=3", "fv1 seq_q=3", "fv1"]
    lines = (tmp_path / "corpus.txt").read_text().splitlines()
    assert lines[:4] == ["# mine", "fv1 seq_k=3", "", "fv1 seq_q=3"]
    assert "fv1 seq_k=18" in lines[4:]


def test_a_search_judges_the_kept_cases_before_it_draws(tmp_path):
    found = schedule(tmp_path, subjects=("s",), kept=("fv1", "fv1 seq_k=3"))

    assert [Chunk("s", (case,), "fuzz", "kept s") for case in ("fv1", "fv1 seq_k=3")] == [
        following(found) for _ in "ab"
    ]
    assert isinstance(following(found), Batch)


def test_outside_of_github_nothing_is_written_that_was_not_asked_for(call, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    old = write_run(tmp_path / "old", (result(),))
    new = write_run(tmp_path / "new", (failing(),), (explained(case="fv1"),))

    done = call("report", new, "--badge", "b.json")
    compared = call("compare", old, new, "--comment", "c.md")

    assert done.exit_code == 0
    assert "::error" not in done.stderr
    assert json.loads(Path("b.json").read_bytes())["color"] == "red"
    assert compared.exit_code == 1
    assert Path("c.md").read_text().startswith("<!-- flashverify -->\n# ")
    assert not (tmp_path / "summary.md").exists()


def test_a_corpus_keeps_failures_and_what_came_near_a_bound(tmp_path):
    near = result("fv1 seq_k=5", stats=(stats("o", 0.9), stats("lse", 0.1)))
    far = result("fv1 seq_k=6", stats=(stats("o", 0.2), stats("lse", 0.05)))
    beyond = failing("fv1 seq_k=7", output="o")
    record = explained(case="fv1 seq_k=2", first="fv1 seq_k=7")
    run = write_run(tmp_path / "run", (near, far, beyond), (record,))
    file = tmp_path / "deep/corpus.txt"

    keep_cases(file, run)
    keep_cases(file, run)

    assert kept_cases(file) == ("fv1 seq_k=7", "fv1 seq_k=2", "fv1 seq_k=5")
    file.write_text("# mine\n" + "".join(f"fv1 seq_k={n}\n" for n in range(10, 509)))
    keep_cases(file, run)
    assert len(kept_cases(file)) == 500
    assert file.read_text().startswith("# mine\nfv1 seq_k=12\n")
    assert kept_cases(tmp_path / "none.txt") == ()


def test_a_corpus_that_is_damaged_is_refused(call, tmp_path):
    (tmp_path / "corpus.txt").write_text("# mine\nfv1 nonsense=3\n")

    with pytest.raises(ConfigError, match=r"corpus\.txt, line 2: 'fv1 nonsense=3' is not accepted"):
        kept_cases(tmp_path / "corpus.txt")
    assert call("run", "--subject", "tail", "--corpus", "corpus.txt").exit_code == 2


def test_a_corpus_keeps_one_case_of_each_trait_the_one_nearest_a_bound(tmp_path):
    plain = [result(f"fv1 seq_k={n}", stats=(stats("o", 0.9 if n == 5 else 0.1),)) for n in (5, 6)]
    causal = [result(f"fv1 seq_k={n} causal=top-left", stats=(stats("o", n / 100),)) for n in (5, 7, 6)]
    blank = result("fv1 seq_k=7 window=1,1", stats=(stats("o", 0.0, exempt=1000),))
    run = write_run(tmp_path / "run", (*plain, *causal, blank))

    keep_cases(tmp_path / "corpus.txt", run)

    assert kept_cases(tmp_path / "corpus.txt") == ("fv1 seq_k=5", "fv1 seq_k=7 causal=top-left")


def test_merged_corpora_hold_each_case_once_and_500_at_most(tmp_path):
    first, second, third = (tmp_path / f"{name}.txt" for name in "abc")
    first.write_text("# mine\nfv1 seq_k=2 causal=top-left\n" + "".join(f"fv1 seq_k={n}\n" for n in range(100, 400)))
    second.write_text("fv1 seq_k=100\nfv1 seq_k=20\n")
    third.write_text("".join(f"fv1 seq_k={n}\n" for n in range(400, 700)))

    merge_corpora(first, (second, third))

    kept = kept_cases(first)
    assert len(kept) == len(set(kept)) == 500
    assert kept[0] == "fv1 seq_k=2 causal=top-left", "the only case of a trait stays, however old it is"
    assert "fv1 seq_k=100" not in kept
    assert kept[-1] == "fv1 seq_k=699"
    assert first.read_text().startswith("# mine\n")
