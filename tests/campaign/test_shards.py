"""The shards of a campaign judge together what it judges without shards, and merge into one run."""

import json
from collections import Counter

import msgspec
import pytest
from click.testing import CliRunner

from flashverify import cli
from flashverify.campaign import toolkit
from flashverify.campaign.commands.terminal import verdict_lines
from flashverify.campaign.corpus.kept import kept_cases
from flashverify.campaign.merging.merge import merge_shards
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.store.writer import RunStore
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.shard import Shard
from flashverify.case import parse_case
from flashverify.errors import UsageError
from flashverify.judge.record import RunRecord
from tests.campaign.killed import killed_after
from tests.campaign.test_engine import HERE, config

OF = 3
BUDGET = {"subjects": ("tail", "clean"), "matrix": True, "workers": 1, "max_cases": 60, "batch": 8, "seed": 3}


def campaign(out, **changes):
    return Engine(config(out, "clean", **(BUDGET | changes))).run()


def judged(run):
    """How often each case of each list and batch was judged."""
    return Counter((r.origin, r.case, r.subject) for r in open_run(run).results())


def counts(run):
    """The findings, what they hold, and their cases."""
    return {
        f.record.key: (f.record.count, f.record.case, {each.key: each.count for each in f.record.folded})
        for f in open_run(run).findings
    }


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """A campaign without shards and its three shards, in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        folder = tmp_path_factory.mktemp("shards")
        campaign(folder / "whole")
        for index in range(1, OF + 1):
            campaign(folder / str(index), shard=Shard(index, OF))
    return folder


def test_merged_shards_are_the_campaign_without_shards_in_whatever_order_they_come(shards, tmp_path):
    first = merge_shards(tmp_path / "a", [shards / name for name in "312"]).summary
    merge_shards(tmp_path / "b", [shards / name for name in "123"])

    whole = open_run(shards / "whole").summary
    assert judged(tmp_path / "a") == judged(shards / "whole")
    assert set(judged(tmp_path / "a").values()) == {1}
    assert all(0 < len(judged(shards / name)) < 60 for name in "123")
    assert (first.cases, first.findings, first.exit_code) == (whole.cases, whole.findings, 1) == (60, 1, 1)
    assert (first.stopped, first.part) == ("budget", "")
    assert counts(tmp_path / "a") == counts(tmp_path / "b") == counts(shards / "whole")
    assert (tmp_path / "a/results.jsonl").read_bytes() == (tmp_path / "b/results.jsonl").read_bytes()
    assert not open_run(tmp_path / "a").record.shard
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"], "nothing is left of the making"


def test_a_shard_that_is_missing_leaves_a_part_that_the_campaign_goes_on_with(shards, tmp_path):
    summary = merge_shards(tmp_path / "out", [shards / name for name in "23"]).summary

    assert (summary.stopped, summary.exit_code) == ("shards", 1)
    left = 60 - len(judged(shards / "1"))
    assert summary.part.startswith("shard 1/3 missing, ")
    assert summary.cases == left
    lines = verdict_lines(summary, (), {}, tmp_path / "out", ())
    assert lines[0].startswith("FAIL: 1 finding; only shard 1/3 missing")
    assert "the command of the shards, without --shard, goes on" in lines[-1]
    clean = msgspec.structs.replace(summary, findings=0, exit_code=3)
    assert verdict_lines(clean, (), {}, tmp_path, ())[0].startswith("NO VERDICT: shard 1/3 missing")

    assert campaign(tmp_path / "out").exit_code == 1
    assert judged(tmp_path / "out") == judged(shards / "whole")


@pytest.mark.slow
@pytest.mark.thorough
def test_a_space_of_fewer_cases_than_a_batch_is_gone_on_with_as_without_shards(tmp_path):
    given = {"subjects": ("tiny",), "matrix": False, "batch": 20, "max_cases": 40}
    campaign(tmp_path / "whole", **given)
    for index in (1, 2):
        campaign(tmp_path / str(index), shard=Shard(index, 2), **given)

    summary = merge_shards(tmp_path / "out", [tmp_path / "1", tmp_path / "2"]).summary
    assert (summary.stopped, summary.exit_code) == ("shards", 3)
    assert summary.part == f"{summary.cases} of 40 cases judged"
    assert campaign(tmp_path / "out", **given).exit_code == 0

    assert judged(tmp_path / "out") == judged(tmp_path / "whole")
    assert judged(tmp_path / "out").total() == 40


@pytest.mark.slow
@pytest.mark.thorough
def test_a_shard_that_was_killed_and_resumed_merges_to_the_same_set(shards, tmp_path):
    killed_after(10, config(tmp_path / "1", "clean", **BUDGET, shard=Shard(1, OF)))
    folders = [tmp_path / "1", shards / "2", shards / "3"]
    unfinished = merge_shards(tmp_path / "early", folders).summary
    assert unfinished.part.startswith("shard 1/3 not over")
    assert unfinished.stopped == "shards"

    campaign(tmp_path / "1", shard=Shard(1, OF))
    merge_shards(tmp_path / "out", folders)

    assert judged(tmp_path / "out") == judged(shards / "whole")
    assert {key: each[0] for key, each in counts(tmp_path / "out").items()} == {
        key: each[0] for key, each in counts(shards / "whole").items()
    }


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(toolkit, "BUNDLED", "fake_toolkit:toolkit")

    def call(*words):
        options = ["--subject", "clean", "--device", "cpu", "--workers", "1"] * (words[0] != "merge")
        return CliRunner().invoke(cli.main, [*words, *options, *["--no-report"] * (words[0] != "status")])

    return call


def test_the_command_line_runs_shards_and_merges_them_with_a_corpus(call, tmp_path):
    for index in "12":
        assert call("run", "--shard", f"{index}/2", "--out", index).exit_code == 0
    (tmp_path / "other.txt").write_text("fv1 seq_k=901\n")
    words = ["merge", "out", "2", "1", "--corpus", "corpus.txt", "--corpus", "other.txt"]
    done = call(*words, "--json")

    fields = json.loads(done.stdout)
    assert (done.exit_code, fields["summary"]["cases"], fields["summary"]["stopped"]) == (0, 20, "budget")
    cases = [parse_case(r.case) for r in open_run("out").results()]
    assert [(q, k) for q in (1, 2, 7, 16, 30) for k in (1, 15, 18, 33)] == [(c.seq_q, c.seq_k) for c in cases]
    kept = kept_cases(tmp_path / "corpus.txt")
    assert kept[0] == "fv1 seq_k=901"
    assert {parse_case(text).seq_k for text in kept[1:]} >= {33}, "the nearest to a bound"
    again = call(*words)
    assert (again.exit_code, len(again.stderr.splitlines())) == (2, 1)
    assert kept_cases(tmp_path / "corpus.txt") == kept


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("fuzz", "--shard", "1/2"), "--seed is missing"),
        (("run", "--shard", "3/2"), "--shard='3/2' is not accepted: I/N, 1 <= I <= N"),
        (("merge", "out"), "RUN_DIR"),
        (("merge", "out", "missing"), "'missing' is not accepted: it is no run folder"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(call, words, named):
    done = call(*words)

    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert named in done.stderr


def made(folder, **changes):
    """A shard that judged nothing."""
    given = {"kind": "fuzz", "subjects": ("a",), "seed": 1, "environment": {"torch": "2.11"}, "shard": "1/2"}
    lists = changes.pop("lists", {})
    store = RunStore(folder)
    store.write_header(RunRecord(**(given | {"sealed": True} | changes)))
    store.write_lists(lists)
    store.close()
    return folder


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"shard": "2/3"}, "number of shards is 3"),
        ({"shard": "2/2", "seed": 2}, "its seed is 2"),
        ({"shard": "2/2", "subjects": ("b",)}, "its subjects is"),
        ({"shard": "2/2", "kind": "run"}, "its kind is 'run'"),
        ({"shard": "2/2", "max_cases": 5}, "its max_cases is 5"),
        ({"shard": "2/2", "environment": {"torch": "2.12"}}, "its torch is '2.12', that of"),
        ({"shard": "2/2", "lists": {"matrix a": ("fv1",)}}, "its matrix a cases are others"),
        ({"shard": "1/2"}, "shard 1/2 is in .* already"),
        ({"shard": ""}, "it was run without --shard"),
    ],
)
def test_what_is_of_another_campaign_is_refused_in_one_line(tmp_path, other, named):
    first = made(tmp_path / "first", lists={"matrix a": ("fv1 seq_k=2",)})
    second = made(tmp_path / "second", **other)

    with pytest.raises(UsageError, match=named) as raised:
        merge_shards(tmp_path / "out", [first, second])
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_neither_a_folder_that_is_no_run_nor_one_that_is_taken_is_touched(tmp_path):
    shard = made(tmp_path / "shard")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"'.*empty' is not accepted: it is no run folder"):
        merge_shards(tmp_path / "out", [shard, tmp_path / "empty"])
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").touch()
    with pytest.raises(UsageError, match="it is there already"):
        merge_shards(tmp_path / "taken", [shard])
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["file"]


def test_a_shard_goes_on_as_that_shard_alone(shards):
    for other in (Shard(2, OF), Shard()):
        (shards / "1/summary.json").rename(shards / "aside.json")
        try:
            with pytest.raises(UsageError, match="shard=1/3, not"):
                campaign(shards / "1", shard=other)
        finally:
            (shards / "aside.json").rename(shards / "1/summary.json")
