"""A Triton kernel as its file has it becomes a subject in one call."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
import triton

from flashverify import Contract, Supports, UsageError, judge_case, kernel_subject
from tests.launching.conftest import CASE, SUPPORTS
from tests.launching.kernels import arguments, attention_kernel, grid

LAUNCH = {"BLOCK_M": (16, 32), "BLOCK_N": (16,)}
BOTH = {"o": "bhsd", "lse": "bhs"}


def made(**changes):
    given = {"grid": grid, "arguments": arguments, "outputs": BOTH, "launch": LAUNCH, "supports": SUPPORTS} | changes
    return kernel_subject(attention_kernel, **given)


def failures(subject, case=CASE):
    return {
        (v.check, v.error) for v in judge_case(subject, case, checks=("accuracy", "nonfinite", "sanitizer")).failures
    }


def test_a_right_kernel_passes_with_each_launch_value():
    subject = made()

    assert subject.name == "attention_kernel"
    assert subject.supports.launch == (("BLOCK_M", (16, 32)), ("BLOCK_N", (16,)))
    assert not subject.supports.backward
    assert failures(subject) == set()
    assert failures(subject, dataclasses.replace(CASE, launch=(("BLOCK_M", 32),))) == set()


def test_a_wrong_kernel_fails():
    def flipped(p, out):
        return arguments(p, out) | {"causal": p.causal is None}

    assert failures(made(arguments=flipped)) == {("accuracy", "bound")}


def test_the_launch_values_of_the_case_reach_the_kernel():
    seen = []

    def noted(p, meta):
        seen.append(meta["BLOCK_M"])
        return grid(p, meta)

    subject = made(grid=noted)
    failures(subject)
    failures(subject, dataclasses.replace(CASE, launch=(("BLOCK_M", 32),)))

    assert set(seen[: len(seen) // 2]) == {16}
    assert set(seen[len(seen) // 2 :]) == {32}


def test_a_store_past_the_end_is_seen_under_a_pretended_gpu():
    def short(p, out):
        assert out.o.is_cuda
        return arguments(p, out) | {"lse": torch.empty(p.q.shape[:3], device="cuda")[:, :-1]}

    assert failures(made(pretend_cuda=(9, 0))) == set()
    assert ("sanitizer", "out-of-bounds") in failures(made(arguments=short, pretend_cuda=(9, 0)))


def test_a_store_into_an_input_is_seen_under_a_pretended_gpu():
    def onto_q(p, out):
        return arguments(p, out) | {"o": p.q}

    assert ("sanitizer", "input-store") in failures(made(arguments=onto_q, pretend_cuda=(9, 0)))


def test_arguments_may_come_in_the_order_of_the_parameters():
    assert failures(made(arguments=lambda p, out: tuple(arguments(p, out).values()))) == set()


def test_whole_configurations_are_launch_values():
    subject = made(launch=[{"BLOCK_M": 16, "BLOCK_N": 16, "num_warps": 4}, {"BLOCK_M": 32, "BLOCK_N": 16}])

    assert subject.supports.launch_configs[1] == (("BLOCK_M", 32), ("BLOCK_N", 16))
    assert failures(subject, dataclasses.replace(CASE, launch=(("BLOCK_M", 32), ("BLOCK_N", 16)))) == set()


def test_an_output_is_read_in_its_layout():
    subject = made(outputs={"o": "bshd"}, contract=Contract(lse_base=None), arguments=_without_lse)
    one_head = dataclasses.replace(CASE, heads_q=1, heads_kv=1)

    assert failures(subject, one_head) == set()  # of one head the layouts are the same memory
    assert failures(subject) == {("accuracy", "bound")}


def _without_lse(p, out):
    return arguments(p, SimpleNamespace(o=out.o, lse=torch.empty(p.q.shape[:3])))


def test_parameters_without_a_value_are_named():
    subject = made(arguments=lambda p, out: {n: x for n, x in arguments(p, out).items() if n not in ("heads", "sk_s")})
    with pytest.raises(
        UsageError, match=r"'attention_kernel' are not accepted: missing: sk_s, heads; it takes q, k, v"
    ):
        subject.function(_problem())
    with pytest.raises(UsageError, match="unknown: stride"):
        made(arguments=lambda p, out: arguments(p, out) | {"stride": 1}).function(_problem())


def _problem():
    from flashverify.case.memory.materialize import materialize

    return materialize(CASE, "cpu")[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs": {"o": "bhds"}}, r"outputs=.* 'o': one of bhsd, bshd, thd, htd"),
        ({"outputs": {"lse": "bhs"}}, "a mapping with 'o'"),
        ({"launch": {"BLOCK_K": (16,)}}, "BLOCK_K is no parameter"),
        ({"launch": {"BLOCK_M": 16}}, "lists of integers"),
    ],
)
def test_a_wrong_declaration_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        made(**changes)


def test_what_is_no_kernel_is_refused():
    with pytest.raises(UsageError, match=r"kernel=.* is not accepted: a function decorated with @triton.jit"):
        kernel_subject(grid, grid=grid, arguments=arguments, supports=Supports())


def test_launch_values_of_an_autotuned_kernel_are_its_configurations():
    tuned = triton.autotune([triton.Config({"BLOCK_M": 16, "BLOCK_N": 16})], key=[])(attention_kernel)
    with pytest.raises(UsageError, match="attention_kernel is autotuned and has configurations"):
        kernel_subject(tuned, grid=grid, arguments=arguments, launch=LAUNCH)
