"""FlexAttention as torch compiles it: one compilation for all numbers of a case, and none that runs uncompiled without a word."""

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from flashverify import parse_case
from flashverify.adapters import flex_attention, flex_mods
from flashverify.case.memory.materialize import materialize
from flashverify.launching.traces import traces

SIZES = "heads_q=2 heads_kv=1 dim_qk=16 dim_v=16 dtype=fp16"
LENGTHS = [(2 + 5 * n % 90, 3 + 7 * n % 110) for n in range(10)]
CLASSES = {
    "a band": [
        f"fv1 batch=2 seq_q={q} seq_k={k} causal=bottom-right window={n + 1},* prefix={n % k},{k // 2} softcap={2 + n} alibi=yes seed={n}"
        for n, (q, k) in enumerate(LENGTHS * 4)
    ],
    "tables": [
        f"fv1 batch=2 seq_q={q} seq_k={k} bitmap={100 + n},{n} bias={('full', 'head', 'shared')[n % 3]}"
        for n, (q, k) in enumerate(LENGTHS)
    ],
    "packed sequences": [
        f"fv1 seq_q={q + 5} seq_k={k + 4} packed=0,{q}/0,{k} layout=bshd" for q, k in LENGTHS
    ],
    "blocks": [
        f"fv1 batch=2 seq_q={q} seq_k={k} blocks={1 << n % 3},{2 << n % 4},200,{n}" for n, (q, k) in enumerate(LENGTHS)
    ],
}  # fmt: skip


pytestmark = pytest.mark.slow


@pytest.fixture
def without_a_gpu(monkeypatch):
    """Gradients on the CPU, as far as torch traces them."""
    monkeypatch.setattr(flex, "_validate_device", lambda q, k, v: None)


def compilations(texts):
    """How often torch compiled for the cases, one after the other."""
    torch.compiler.reset()
    kernel = torch.compile(flex.flex_attention, dynamic=True, fullgraph=True, backend="eager")
    subject = flex_attention(kernel, device="cpu", name="flex")
    traces.listen()
    before = traces.count
    for text in texts:
        problem, _ = materialize(parse_case(f"{text} backward=no {SIZES}"))
        subject.forward(problem)
    return traces.count - before


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each != "a band")) for each in CLASSES]
)
def test_cases_that_differ_in_numbers_are_one_compilation(name):
    assert compilations(CLASSES[name]) == 1


def test_a_table_that_keeps_its_strides_is_another_compilation(monkeypatch):
    monkeypatch.setattr(flex_mods, "_table", lambda p, given: given.expand(p.case.batch, p.case.heads_q, -1, -1))

    assert compilations(CLASSES["tables"]) > 1


def gradients():
    torch.compiler.reset()
    kernel = torch.compile(flex.flex_attention, dynamic=True, fullgraph=True, backend="aot_eager")
    subject = flex_attention(kernel, device="cpu", name="flex", backward=True, contract={"lse_base": None})
    problem, _ = materialize(parse_case(f"fv1 seq_q=5 seq_k=6 softcap=2 {SIZES}"))
    return subject.backward(problem, subject.forward(problem))


def test_a_backward_through_a_softcap_is_compiled(without_a_gpu):
    assert torch.isfinite(gradients().dq).all()


def test_a_softcap_that_is_a_python_number_is_not_run_uncompiled(without_a_gpu, monkeypatch):
    monkeypatch.setattr(flex_mods, "_captured", lambda p, number, name: number)

    with pytest.raises((AssertionError, RuntimeError), match=r"fake tensor|FakeTensor"):
        gradients()


def test_the_adapter_compiles_torchs_function_as_a_whole(without_a_gpu, monkeypatch):
    given = []
    monkeypatch.setattr(torch, "compile", lambda kernel, **options: given.append(options) or kernel)
    flex_attention(compiled=True)
    flex_attention(lambda q, k, v, **others: q, compiled=True)

    assert given == [{"dynamic": True, "fullgraph": True}, {"dynamic": True, "fullgraph": False}]
