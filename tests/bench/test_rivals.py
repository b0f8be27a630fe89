"""What only a bench times: FlexAttention with its mask made beforehand, and a file of the tutorial."""

import pytest
import torch

from flashverify.bench import as_json
from flashverify.bench.problems import problem_of
from flashverify.bench.rivals import flex_attention, sha256_of, triton_tutorial
from tests.bench.workloads import changed

TUTORIAL = """
import torch

def attention(q, k, v, causal, sm_scale):
    s = (q @ k.mT).float() * sm_scale
    s = s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(), float("-inf")) if causal else s
    return s.softmax(-1).to(v.dtype) @ v
"""


@pytest.mark.parametrize(("arguments", "refused"), [(["Q"], True), (["Q", "CAUSAL"], False)])
def test_a_tutorial_whose_backward_is_causal_always_is_not_timed_without_a_mask(tmp_path, arguments, refused):
    file = tmp_path / f"a_tutorial_of_{len(arguments)}.py"
    file.write_text(f"{TUTORIAL}\nclass _attn_bwd:\n    arg_names = {arguments}\n")
    supports = triton_tutorial(str(file)).supports
    for causal, direction in ((False, "backward"), (True, "backward"), (False, "forward")):
        workload = changed(seq_q=128, seq_k=128, heads_kv=4, dtype="fp16", causal=causal, direction=direction)
        reason = supports.refusal(problem_of(workload, "cpu").case)
        expected = refused and direction == "backward" and not causal
        assert (reason == "the backward of this tutorial is causal always") == expected


def test_the_file_of_the_tutorial_is_called_as_the_tutorial_is_and_named_by_its_hash(tmp_path):
    file = tmp_path / "a_tutorial.py"
    file.write_text(TUTORIAL)
    made = triton_tutorial(str(file))
    workload = changed(seq_q=128, seq_k=128, heads_kv=4, dtype="fp16", causal=True, direction="backward")
    problem = problem_of(workload, "cpu")
    assert made.supports.refusal(problem.case) is None
    o = made.forward(problem).o
    expected = torch.nn.functional.scaled_dot_product_attention(problem.q, problem.k, problem.v, is_causal=True)
    torch.testing.assert_close(o, expected, atol=1e-2, rtol=0)
    assert as_json([], "machine", {"tutorial": sha256_of(str(file))})["sources"]["tutorial"][:4] == "0424"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("causal", [False, True])
def test_flex_attention_computes_attention(causal, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    problem = problem_of(changed(causal=causal, seq_q=3, seq_k=5), "cpu")
    given = flex_attention("cpu").forward(problem).o
    hidden = torch.ones(3, 5, dtype=torch.bool).tril(2) if causal else None
    expected = torch.nn.functional.scaled_dot_product_attention(
        problem.q, problem.k, problem.v, attn_mask=hidden, enable_gqa=True
    )
    torch.testing.assert_close(given, expected)
