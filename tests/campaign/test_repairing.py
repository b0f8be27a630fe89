"""`flashverify repair`: what it accepts, what it says of a case, and that its first repair is a patch of the file."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashverify import cli
from flashverify.campaign import toolkit
from flashverify.campaign.repairing import asking, child
from flashverify.campaign.repairing.patch import patch_text, placed
from flashverify.campaign.repairing.record import Answer, Request
from flashverify.campaign.repairing.stored import first_of
from flashverify.campaign.repairing.words import answer_lines
from flashverify.campaign.store.reproduction import case_json
from flashverify.errors import UsageError
from flashverify.judge.record import Repair
from tests.campaign.fake_toolkit import FakeToolkit
from tests.report.synthetic import finding, write_run

SOURCE = "def walk(x):\n    if x:\n        x *= 2\n    y = x\n    return x\n"
CHANGED = Repair("device/walk.py", 5, "walk", "return x", "return -x", 9, 8)
LEFT_OUT = Repair("device/walk.py", 3, "walk", "x *= 2", "", 9, 9)
OTHER = Repair("device/walk.py", 4, "walk", "y = x", "y = 2 * x", 9, 9)


@pytest.fixture
def call(monkeypatch, tmp_path):
    """The command line over the toolkit without torch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(toolkit, "BUNDLED", "fake_toolkit:toolkit")
    return lambda *words, stdin=None: CliRunner().invoke(cli.main, ["repair", *map(str, words)], input=stdin)


@pytest.fixture
def asked(monkeypatch, call):
    """The requests that the command makes, each of which is answered with two repairs."""
    requests = []

    def ask(request):
        requests.append(request)
        return Answer(subject="walk", evidence="interpreter", repairs=(CHANGED, OTHER), seconds=3.2)

    monkeypatch.setattr(asking, "ask", ask)
    return requests


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "device").mkdir()
    (tmp_path / "device/walk.py").write_text(SOURCE)
    return tmp_path


def git(folder, *words, stdin=""):
    return subprocess.run(["git", *words], cwd=folder, input=stdin, text=True, check=True, capture_output=True).stdout


def test_git_applies_the_first_of_the_repairs_that_are_printed(checkout, call, asked):
    done = call("fv1 seq_q=3", "--subject", "walk", "--seconds", "7")

    assert done.exit_code == 0, done.output
    git(checkout, "apply", stdin=done.stdout)
    assert (checkout / "device/walk.py").read_text() == SOURCE.replace("return x", "return -x")
    assert done.stdout.splitlines()[:5] == [
        "2 repairs: walk (Triton's CPU interpreter, 3 s)",
        "fv1 seq_q=3",
        "(changes that make it right, each by itself; not necessarily what was meant)",
        "",
        "device/walk.py:5 (walk) changed so, it is right in 9 further cases, of which 8 fail without:",
    ]
    assert done.stdout.splitlines()[-3:] == [
        "or, by itself: device/walk.py:4 (walk) changed so, it is right in 9 further cases, all of which fail without:",
        "  - y = x",
        "  + y = 2 * x",
    ]
    (request,) = asked
    assert (request.subject, request.case, request.first, request.seconds) == ("walk", "fv1 seq_q=3", "", 7)


def test_json_has_the_patch_of_each_repair(checkout, call, asked):
    found = json.loads(call("fv1 seq_q=3", "--subject", "walk", "--json").stdout)

    assert (found["exit_code"], found["subject"], found["case"], found["why"]) == (0, "walk", "fv1 seq_q=3", "")
    assert [each["line"] for each in found["repairs"]] == [5, 4]
    git(checkout, "apply", stdin=found["repairs"][1]["patch"])
    assert "    y = 2 * x\n" in (checkout / "device/walk.py").read_text()


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_patch_keeps_the_end_of_the_file(checkout, end):
    (checkout / "device/walk.py").write_text(SOURCE.rstrip("\n") + end)

    git(checkout, "apply", stdin=patch_text(placed(CHANGED, checkout)))

    assert (checkout / "device/walk.py").read_text() == SOURCE.replace("return x", "return -x").rstrip("\n") + end


def test_a_block_of_which_nothing_is_left_passes(checkout):
    git(checkout, "apply", stdin=patch_text(placed(LEFT_OUT, checkout)))

    assert (checkout / "device/walk.py").read_text() == SOURCE.replace("x *= 2", "pass")


def test_lines_that_are_not_in_the_file_are_shown_and_are_no_patch(checkout, call, asked):
    (checkout / "device/walk.py").write_text("\n" + SOURCE)
    outside = Repair("../walk.py", 1, "walk", "a", "b", 1, 1)
    (checkout.parent / "walk.py").write_text("a\n")

    done = call("fv1 seq_q=3", "--subject", "walk")

    assert placed(outside, checkout) is placed(CHANGED, checkout) is None
    assert "  - return x\n  + return -x\n" in done.stdout
    assert "@@" not in done.stdout


def test_a_stored_finding_brings_its_subject_check_numerics_and_first_case(tmp_path, call, asked):
    record = finding(evidence="interpreter (h100)", case="fv1 seq_q=17")
    run = write_run(tmp_path / "run", (), (record,))
    folder = run / "findings/finding-0"
    (folder / "case.json").write_bytes(case_json(record))

    for argument in (run, folder, folder / "finding.json", folder / "case.json"):
        assert call(argument).exit_code == 0
    words = {(r.subject, r.case, r.check, r.numerics) for r in asked}
    assert words == {("my.module:kernel", record.case, "accuracy", "h100")}
    assert [bool(r.first) for r in asked] == [True, True, True, False]
    assert {r.first for r in asked} == {record.first, ""} == {first_of(str(folder)), first_of("fv1 seq_q=3")}
    call(folder, "--first", "fv1 seq_k=9", "--numerics", "ieee")
    assert (asked[-1].first, asked[-1].numerics) == ("fv1 seq_k=9", "ieee")
    assert [r.stored_first for r in asked] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fv1",), ("--subject is missing",)),
        (("nothing", "--subject", "s"), ("case='nothing'", "a finding folder")),
        (("fv1", "--subject", "mistyped"), ("subject 'mistyped' is not known",)),
        (("fv1", "--subject", "s", "--device", "cuda"), ("device='cuda'", "interpreted: --device cpu")),
        (("fv1", "--subject", "s", "--device", "tpu"), ("--device='tpu'", "auto, cpu, cuda")),
        (("fv1", "--subject", "s", "--numerics", "x"), ("numerics='x'", "ieee, h100")),
        (("fv1", "--subject", "s", "--seconds", "0"), ("--seconds", "0", "1<=x<=86400")),
        (("fv1", "--subject", "s", "--first", "fv1 seq_q=x"), ("seq_q='x'", "not accepted")),
        (("two", "--subject", "s"), ("case='two'", "2 findings", "two/findings/finding-0, two/findings/finding-1")),
        (("none", "--subject", "s"), ("case='none'", "no finding")),
    ],
)
def test_bad_input_is_one_line_and_starts_no_process(tmp_path, call, asked, words, said):
    write_run(tmp_path / "two", (), (finding(), finding(output="dk", seconds=99.0)))
    write_run(tmp_path / "none")

    done = call(*words)

    assert (done.exit_code, asked) == (2, []), done.output
    (line,) = done.stderr.strip().splitlines()
    assert all(word in line for word in said), line


def answer(subject, case="fv1 seq_q=50 seq_k=50", **changes):
    request = Request(toolkit="", subject=subject, case=case, seconds=9, **changes)
    return child.answer(request, FakeToolkit())


def test_what_has_no_wrong_value_is_said_and_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(FakeToolkit, "repairs", lambda *_, **__: pytest.fail("edits are tried"))

    assert answer("clean").why == "the subject is right on this case"
    assert answer("raises").why == ("no output has a wrong value to make right: what fails is exception: <b>3 > 1</b>")
    assert not answer("raises").repairs


def test_values_may_be_wrong_where_another_check_failed(monkeypatch):
    monkeypatch.setattr(FakeToolkit, "repairs", lambda *_, first, seconds: (CHANGED,))

    assert answer("everything", check="memory").repairs == answer("tail", check="accuracy").repairs == (CHANGED,)


def test_of_wrong_values_it_says_whether_time_was_over(monkeypatch):
    seen = []

    def none(_, subject, case, *, first, seconds):
        seen.append((subject.name, case.seq_q, first.seq_q, seconds))
        return ()

    monkeypatch.setattr(FakeToolkit, "repairs", none)
    clock = iter((0.0, 8.0, 0.0, 9.0))
    monkeypatch.setattr(child.time, "monotonic", lambda: next(clock))

    early, late = (answer("tail", first="fv1 seq_q=40 seq_k=40") for _ in range(2))

    assert seen == [("tail", 50, 40, 9)] * 2
    assert early.why == (
        "none of the changes of one place that are tried makes the subject right on this case and on further ones"
    )
    assert late.why.startswith("in 9 s no change of one place was found that makes the subject right")
    assert answer_lines(late, "fv1", Path())[0] == "no repair: tail (fake, 9 s)"


def test_another_case_must_be_accepted_unless_a_stored_finding_brings_it(monkeypatch):
    seen = []
    monkeypatch.setattr(FakeToolkit, "repairs", lambda *_, first, seconds: seen.append(first) or ())

    answer("tail", first="fv1 seq_q=7", stored_first=True)
    with pytest.raises(UsageError, match="first='fv1 seq_q=7' is not accepted by tail: seq_q=7"):
        answer("tail", first="fv1 seq_q=7")

    assert seen == [None]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("clean",), 1, "the subject is right on this case"),
        (("segfault",), 3, "died with SIGSEGV, on the case or on a change of the source"),
        (("refuses-one",), 2, "case='fv1 seq_q=7' is not accepted by refuses-one: seq_q=7"),
        (("missing",), 2, "subject 'missing' is not known"),
        (("harness",), 3, "the oracle's error is too large"),
        (("half-harness",), 3, "raised KeyError: 'dq'"),
    ],
)
def test_a_process_answers(call, words, code, said):
    case = "fv1 seq_q=7" if words == ("refuses-one",) else "fv1 seq_q=50"
    done = call("-", "--subject", *words, stdin=case)

    assert done.exit_code == code, done.output
    assert said in done.output


MODULE = """
import torch
from flashverify import Supports, subject


def attend(q, k, v, scale):
    s = q @ k.transpose(-1, -2) * scale
    top = s.amax(-1, keepdim=True)
    weights = (s - top).exp()
    total = weights.sum(-1, keepdim=True)
    total *= 2
    return weights @ v / total, (top + total.log()).squeeze(-1)


@subject(supports=Supports(masks=(), gqa=False, backward=False, dtypes=("fp32",), contiguous=True))
def twice(p):
    return attend(p.q, p.k, p.v, p.scale)


@subject(supports=Supports(masks=(), gqa=False, backward=False, dtypes=("fp32",), contiguous=True))
def gone(p):
    raise RuntimeError("Found no NVIDIA driver on your system.")
"""
CASE = "fv1 seq_q=3 seq_k=5 dim_qk=16 dim_v=16 dtype=fp32 backward=no"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_line_that_is_too_many_is_found(mine):
    done = CliRunner().invoke(cli.main, ["repair", CASE, "--subject", "mine.py:twice", "--seconds", "60"])

    assert done.exit_code == 0, done.output
    assert "\nmine.py:11 (attend) without this line, it is right in " in done.stdout
    assert (mine / "mine.py").read_text() == MODULE
    git(mine, "apply", stdin=done.stdout)
    assert (mine / "mine.py").read_text() == MODULE.replace("    total *= 2\n", "")


def test_a_subject_that_cannot_run_is_no_wrong_one(mine):
    done = CliRunner().invoke(cli.main, ["repair", CASE, "--subject", "mine.py:gone"])

    assert done.exit_code == 3, done.output
    assert "the subject could not run: it needs a GPU" in done.stdout
