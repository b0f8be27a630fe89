"""The kernels in examples/ are right, their adapters are short, and a defect planted in each is found."""

import ast
import importlib.util
from pathlib import Path

import pytest

from flashverify import judge_case, parse_case

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("paged_decode", "packed_forward", "hand_written_backward")
CASES = {
    "paged_decode": (
        "fv1 batch=3 heads_q=4 heads_kv=2 seq_k=70 dim_qk=24 dim_v=40 klen=70,0,33 page_size=16 padding=nan backward=no",
        "fv1 batch=2 heads_q=2 heads_kv=2 seq_k=37 dtype=bf16 page_size=1 layout=bshd gap=8 backward=no",
        "fv1 batch=1 heads_q=3 heads_kv=1 seq_k=9 dtype=fp32 page_size=64 expand=yes backward=no",
    ),
    "packed_forward": (
        "fv1 heads_q=4 heads_kv=2 seq_q=80 seq_k=90 dim_qk=24 causal=bottom-right packed=0,3,3,70/0,40,45,80 padding=inf backward=no",
        "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=35 seq_k=67 dtype=bf16 causal=bottom-right backward=no",
        "fv1 heads_q=2 heads_kv=1 seq_q=9 seq_k=12 dtype=fp32 packed=0,9/0,12 layout=bshd gap=8 backward=no",
    ),
    "hand_written_backward": (
        "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=40 seq_k=70 dim_qk=24 dim_v=24 dtype=fp32",
        "fv1 batch=1 heads_q=3 heads_kv=3 seq_q=37 seq_k=37 causal=top-left do=expanded gap=8",
    ),
}
PLANTED = {
    "paged_decode": ("key // PAGE, mask=here", "key // BLOCK, mask=here"),
    "packed_forward": ("row[:, None] + len_k - len_q", "row[:, None]"),
    "hand_written_backward": ("p * (dp - delta[:, None])", "p * dp"),
}


def load(name, folder=FOLDER):
    path = folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def failures(kernel, name, **asked):
    return [v for text in CASES[name] for v in judge_case(kernel, parse_case(text), **asked).failures]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_right(name):
    assert not failures(load(name), name)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_defect_is_found(name, tmp_path):
    text = (FOLDER / f"{name}.py").read_text()
    right, wrong = PLANTED[name]
    assert text.count(right) == 1
    (tmp_path / f"{name}.py").write_text(text.replace(right, wrong))
    found = failures(load(name, tmp_path), name, checks=("accuracy",))

    assert {v.check for v in found} == {"accuracy"}


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_is_short(name):
    text = (FOLDER / f"{name}.py").read_text()
    adapter = next(x for x in ast.parse(text).body if isinstance(x, ast.FunctionDef) and x.name == name)
    others = [x for x in ast.parse(text).body if isinstance(x, ast.FunctionDef) and x.name.startswith("run_")]
    lines = sum(x.end_lineno - min(d.lineno for d in [*x.decorator_list, x]) + 1 for x in [adapter, *others])

    assert lines <= 15
