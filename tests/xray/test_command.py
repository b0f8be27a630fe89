"""The command: words, files, exit codes."""

import json

import pytest
from click.testing import CliRunner

from flashverify.cli import main
from flashverify.errors import NoVerdictError, UsageError
from flashverify.xray.child import answer
from flashverify.xray.command import answered
from flashverify.xray.request import Failed, Request

LEAKY = """
import torch
from flashverify.subjects import Contract, Supports, subject


@subject(supports=Supports(dtypes=("fp32",), masks=("causal",), causal=("top-left",), gqa=False), contract=Contract(), device="cpu")
def leaky(p):
    shape = p.q.shape[2], p.k.shape[2]
    see = torch.ones(shape, dtype=torch.bool).tril(1)
    s = (p.q @ p.k.mT * p.scale).masked_fill(~see, -torch.inf)
    return torch.softmax(s, -1) @ p.v, torch.logsumexp(s, -1)

"""


def run(*arguments):
    result = CliRunner().invoke(main, ["xray", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture
def leaky(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(LEAKY, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_leak_is_exit_code_1_with_words_numbers_and_a_picture(leaky, tmp_path):
    code, output = run(f"{leaky}:leaky", "--length", 48, "--out", tmp_path / "x", "--json", "--device", "cpu")
    found = json.loads(output)

    assert code == found["exit_code"] == 1
    assert {(d["output"], d["error"], d["count"]) for d in found["differences"]} == {
        ("lse", "lse-count", 47),
        *((name, "leaked", 47) for name in ("o", "dv", "dq", "dk")),
    }
    assert (tmp_path / "x/xray.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "x/xray.json").read_text(encoding="utf-8"))["differences"] == found["differences"]


def test_what_stands_in_the_way_is_an_error_of_its_kind():
    with pytest.raises(NoVerdictError, match="mine raised ValueError: no such thing"):
        answered("mine", Failed(kind="", message="ValueError: no such thing"))
    with pytest.raises(UsageError, match="it needs a GPU"):
        answered("mine", Failed(kind="UsageError", message="it needs a GPU"))


def test_a_case_that_the_subject_does_not_take_is_refused(tmp_path):
    request = Request(subject="torch-cpu", case="fv1 window=1,1", length=0, mask="", out=str(tmp_path), device="cpu")

    with pytest.raises(UsageError, match="is not accepted by torch-cpu: mask parts"):
        answer(request)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("torch-cpu", "--case", "fv1", "--length", "5"), "--case is not accepted together with --length"),
        (("torch-cpu", "--device", "tpu"), "device='tpu' is not accepted"),
        (("torch-cpu", "--length", "0"), "--length"),
    ],
)
def test_wrong_arguments_are_exit_code_2(arguments, words):
    code, output = run(*arguments)

    assert code == 2
    assert words in output


def test_a_clean_subject_is_told_to_be_as_declared(tmp_path):
    from flashverify.xray.record import record_text

    found = answer(Request(subject="torch-cpu", case="", length=40, mask="full", out=str(tmp_path), device="cpu"))

    assert found.record.differences == ()
    assert "Every mask is as declared." in record_text(found.record)
    assert {r.output: r.right for r in found.record.readings} == dict.fromkeys(("o", "dv", "dq", "dk"), 1600)
