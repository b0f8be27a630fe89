"""What a folder of vectors holds, and that its rules say of every element what the check `accuracy` says."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from flashverify import Contract, Form, Supports, parse_case, subject
from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import check_accuracy
from flashverify.checks.answers import answers_of
from flashverify.checks.passes.execution import Execution
from flashverify.cli import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "vectors.md"
CASES = (
    "fv1 seq_q=5 seq_k=9 dtype=fp32 causal=bottom-right",
    "fv1 batch=2 seq_q=4 seq_k=6 klen=6,0 padding=nan dlse=yes",
    "fv1 seq_q=3 seq_k=5 causal=top-left regime=overflow dtype=fp16",
    "fv1 heads_q=2 seq_q=3 seq_k=5 bias=full softcap=30 sink=yes dtype=bf16",
)


@subject(
    supports=Supports(
        precisions=("ieee",),
        masks=("causal", "key_lengths"),
        logits=("bias", "softcap", "sink"),
        dim_multiple=1,
        dlse=True,
    ),
    form=Form(delta_from="o", p_from="lse"),
    contract=Contract(gradients=frozenset({"dq", "dk", "dv", "dbias", "dsink"})),
)
def declared(problem):
    raise AssertionError("no kernel runs")


def right(answer, got):
    """Bool: what the rules accept, as the reader in C++ has it."""
    rule, expected = answer.rule, answer.expected
    signed = torch.isinf(got) & (torch.sign(got) == torch.sign(expected))
    infinite = (signed & (rule >= 2)) | (torch.isinf(got) & (rule == 3))
    within = (rule != 4) & torch.isfinite(got) & ((got - expected).abs() <= answer.bound)
    return (rule == 1) | (got == expected) | infinite | within


@pytest.mark.parametrize("text", CASES)
def test_the_rules_accept_and_refuse_what_the_check_does(text):
    case, kernel = parse_case(text), declared
    assert kernel.supports.refusal(case) is None
    problem, arena = materialize(case)
    answers = answers_of(kernel, problem)
    assert {"o", "lse", "dq", "dk", "dv"} <= set(answers)
    refused = 0
    for name, answer in answers.items():
        for fill in (
            answer.expected,
            answer.expected + 0.9 * answer.bound,
            answer.expected + 1.2 * answer.bound + 1e-30,
            torch.full_like(answer.expected, torch.inf),
            torch.full_like(answer.expected, -torch.inf),
            torch.full_like(answer.expected, torch.nan),
        ):
            outputs = {other: answers[other].expected for other in answers} | {name: fill}
            found = check_accuracy(kernel, Execution(problem, outputs, {}, ())).comparisons
            said = next(x for x in found if (x.stats.output, x.stats.mode) == (name, "end-to-end"))
            assert bool(right(answer, fill).all()) == (not said.verdicts), (name, fill)
            refused += bool(said.verdicts)
    assert refused >= 3 * len(answers) - 6
    del arena


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Vectors in both formats: plain ones, which the program of the document can run."""
    place = tmp_path_factory.mktemp("made")
    stub = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (place / "mine.py").write_text(stub[1])
    target = place / "vectors"
    cases = ("seq_q=7 seq_k=9 causal=bottom-right", "batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=8 klen=3,0 padding=nan")
    named = [word for case in cases for word in ("--case", f"fv1 dtype=bf16 {case}")]
    done = made(target, *named, "--format", "both", spec=f"{place}/mine.py:declared")
    assert done.exit_code == 0, done.output
    return target


def made(target, *options, spec="torch-cpu"):
    return CliRunner().invoke(main, ["vectors", str(target), "--subject", spec, *options])


def test_both_formats_hold_the_same_numbers(folder):
    safetensors = pytest.importorskip("safetensors.torch")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["schema"] == "flashverify.vectors/1"
    assert len(manifest["vectors"]) == 2
    for vector in manifest["vectors"]:
        binary = safetensors.load_file(folder / vector["files"]["safetensors"]["path"])
        text = json.loads((folder / vector["files"]["json"]["path"]).read_text())
        assert text["case"] == vector["case"]
        assert set(binary) == set(text["tensors"]) > {"q", "visible", "scale", "o.expected", "dv.rule"}
        for name, tensor in binary.items():
            entry = text["tensors"][name]
            values = [float.fromhex(x) if isinstance(x, str) else x for x in entry["values"]]
            read = torch.tensor(values, dtype=torch.float64).reshape(entry["shape"])
            assert torch.equal(read.nan_to_num(7.5), tensor.double().nan_to_num(7.5)), name


def test_the_same_command_writes_the_same_bytes(folder, tmp_path):
    pytest.importorskip("safetensors.torch")
    first, second = (tmp_path / name for name in ("first", "second"))
    for target in (first, second):
        assert made(target, "--cases", "3", "--seed", "4").exit_code == 0
    names = sorted(path.name for path in first.iterdir())
    assert len(names) == 5
    assert [(first / name).read_bytes() for name in names] == [(second / name).read_bytes() for name in names]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--cases", "0"), "--cases=0 is not accepted: at least one case"),
        (("--case", "fv1 seq_q=70000 seq_k=70000"), "pairs; at most"),
        (("--case", "fv1 seq_q=3 seq_k=3 sink=yes"), "is not accepted by torch-cpu"),
        (("--case", "fv1 seq=3"), "seq"),
    ],
)
def test_bad_input_is_one_error_and_nothing_is_written(tmp_path, options, said):
    done = made(tmp_path / "new", *options)
    assert done.exit_code == 2
    assert said in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_refused(folder):
    before = sorted(folder.iterdir())
    done = made(folder, "--cases", "1")
    assert done.exit_code == 2
    assert "it exists; a new or an empty folder" in done.output
    assert sorted(folder.iterdir()) == before


def test_an_interrupted_run_leaves_nothing(tmp_path, monkeypatch):
    from flashverify.vectors import folder as writing

    def interrupted(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(writing.FORMATS, "json", interrupted)
    done = made(tmp_path / "new", "--cases", "2", "--format", "json")
    assert done.exit_code == 2
    assert "No space left on device" in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_program_of_the_document_judges_the_vectors(folder, tmp_path):
    pytest.importorskip("safetensors.torch")
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    source = re.search(r"```cpp\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "judge.cpp").write_text(source[1])
    subprocess.run(
        [compiler, "-std=c++17", "-Wall", "-Werror", f"-I{folder}", "judge.cpp", "-o", "judge"],
        cwd=tmp_path,
        check=True,
    )
    right = subprocess.run([tmp_path / "judge", *folder.glob("*.safetensors")], capture_output=True, text=True)
    assert right.returncode == 0, right.stdout
    changed = tmp_path / "changed.safetensors"
    changed.write_bytes(doubled_scale(next(folder.glob("case-0000.safetensors"))))
    wrong = subprocess.run([tmp_path / "judge", changed], capture_output=True, text=True)
    assert wrong.returncode == 1, wrong.stdout


def doubled_scale(path):
    """A vector whose scale is twice the one that its outputs were made with."""
    from safetensors.torch import load_file, save

    tensors = load_file(path)
    return save(tensors | {"scale": 2 * tensors["scale"]})
