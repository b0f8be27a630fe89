"""The command: options, exit codes, files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashverify.cli import main
from flashverify.errors import NoVerdictError, SubjectLoadError
from flashverify.training.child import Failed, answer
from flashverify.training.command import answered
from flashverify.training.settings import Request, Settings

PLANTED = Path(__file__).with_name("planted.py")


def run(*arguments):
    result = CliRunner().invoke(main, ["train", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_defect_is_exit_code_1_with_a_record_and_a_picture(tmp_path):
    options = ("--length", 32, "--heads", 1, "--layers", 1, "--device", "cpu", "--out", tmp_path / "x", "--json")
    code, output = run("--subject", f"{PLANTED}:DK", "--dtype", "fp32", "--steps", 2, *options)
    found = json.loads(output[output.index("{") :])

    assert code == found["exit_code"] == 1
    assert {each["what"] for each in found["findings"]} == {"dk", "wk0"}
    assert len(found["steps"]) == 2
    assert Path(found["picture"]).read_bytes().startswith(b"\x89PNG")
    assert json.loads(Path(found["data"]).read_text(encoding="utf-8"))["findings"] == found["findings"]
    assert str(tmp_path) not in Path(found["data"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dtype", "fp8"), "dtype='fp8' is not accepted: one of fp32, bf16, fp16"),
        (("--device", "tpu"), "device='tpu' is not accepted: one of auto, cpu, cuda"),
        (("--subject", "nothing"), "subject 'nothing' is not known"),
        (("--dropout", "1"), "1.0 is not in the range 0<=x<1"),
    ],
)
def test_what_is_not_accepted_is_one_line_and_exit_code_2(arguments, words):
    code, output = run(*arguments)

    assert code == 2
    assert words in output
    assert len(output.splitlines()) == 1


def test_a_forward_only_subject_is_refused(tmp_path):
    settings = Settings(subject="torch-cpu", device="cpu", dropout=0.5)

    with pytest.raises(ValueError, match="does not take the layers of the model: dropout"):
        answer(Request(settings=settings, folder=str(tmp_path)), lambda: False)


def test_a_process_that_says_nothing_or_refuses_is_an_error():
    import msgspec

    with pytest.raises(NoVerdictError, match="the process of mine ended with SIGSEGV before it said anything"):
        answered("mine", b"", -11)
    with pytest.raises(SubjectLoadError, match="no such thing"):
        answered("mine", msgspec.msgpack.encode(Failed(kind="SubjectLoadError", message="no such thing")), 0)
