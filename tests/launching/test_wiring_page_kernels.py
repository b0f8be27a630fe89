"""The blocks of docs/wiring.md about kernels as they are run as they stand, on packages of those names."""

import re
import sys
import types
from pathlib import Path

import pytest

from flashverify import judge_case, parse_case
from tests.launching.kernels import attention_kernel

TEXT = (Path(__file__).resolve().parents[2] / "docs/wiring.md").read_text()
SECTION = TEXT.partition("## Triton kernels as their files have them")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
CASES = (
    "fv1 heads_q=2 heads_kv=2 seq_q=9 seq_k=20 dtype=fp32 causal=top-left backward=no",
    "fv1 batch=2 seq_q=40 seq_k=20 launch=BLOCK_M:32,BLOCK_N:32 backward=no",
)


def attention(q, k, v, scale):
    assert q.is_cuda
    p = (q.double() @ k.double().mT * scale).softmax(-1)
    return (p @ v.double()).to(q.dtype)


@pytest.fixture
def packages(monkeypatch):
    kernels, functions = types.ModuleType("my_package.kernels"), types.ModuleType("my_package.attention")
    kernels.fwd_kernel, functions.attention = attention_kernel, attention
    monkeypatch.setitem(sys.modules, "my_package", types.ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, "my_package.kernels", kernels)
    monkeypatch.setitem(sys.modules, "my_package.attention", functions)


def subject_of(block):
    names = {}
    exec(block, names)
    return names["mine"]


@pytest.mark.parametrize("case", CASES)
def test_the_bare_kernel_is_wired(packages, case):
    result = judge_case(subject_of(BLOCKS[0]), parse_case(case))

    assert {stats.output for stats in result.stats} == {"o", "lse"}
    assert not result.failures


def test_code_that_asks_for_a_gpu_is_answered(packages):
    mine = subject_of(BLOCKS[1])

    assert len(BLOCKS) == 2
    assert not judge_case(mine, parse_case("fv1 seq_q=5 seq_k=9")).failures
