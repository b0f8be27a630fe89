"""Autotuned kernels run with the configuration of the case, without a benchmark."""

import dataclasses

import pytest
import torch
import triton
from triton import Config
from triton.language import constexpr
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError

from flashverify import Contract, UsageError, judge_case, kernel_subject, subject
from flashverify.launching.autotuning import choices, configured
from tests.launching.conftest import CASE, SUPPORTS
from tests.launching.kernels import arguments, attention_kernel, grid

CONFIGS = [Config({"BLOCK_M": m, "BLOCK_N": 16}, num_warps=w) for m in (16, 32) for w in (4, 8)]
OF_32 = (("BLOCK_M", 32), ("BLOCK_N", 16))


@triton.jit
def fill(x, n, value, FLAG: constexpr, BLOCK: constexpr):
    at = triton.language.program_id(0) * BLOCK + triton.language.arange(0, BLOCK)
    triton.language.store(x + at, value + FLAG + 10 * BLOCK, mask=at < n)


def tuned(configs=CONFIGS, kernel=attention_kernel, **options):
    return triton.autotune(configs, key=["keys"], **options)(kernel)


def made(kernel, **changes):
    given = {"grid": grid, "arguments": arguments, "outputs": {"o": "bhsd", "lse": "bhs"}, "supports": SUPPORTS}
    return kernel_subject(kernel, **given | changes)


def failures(kernel, case=CASE):
    return {(v.check, v.error) for v in judge_case(kernel, case, checks=("accuracy", "sanitizer")).failures}


def blocks(kernel, launch=()):
    """The values of BLOCK_M that the grid of a subject got."""
    seen = []

    def noted(p, meta):
        seen.append(meta["BLOCK_M"])
        return grid(p, meta)

    assert failures(made(kernel, grid=noted), dataclasses.replace(CASE, launch=launch)) == set()
    return set(seen)


def test_configurations_are_launch_values_and_those_that_differ_in_warps_are_one():
    assert made(tuned()).supports.launch_configs == ((("BLOCK_M", 16), ("BLOCK_N", 16)), OF_32)


def test_options_tell_configurations_apart_where_kernels_are_compiled(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)

    assert len(choices((tuned(),))) == 4
    assert (("BLOCK_M", 32), ("BLOCK_N", 16), ("num_warps", 8)) in choices((tuned(),))


def test_configurations_with_the_same_integers_have_a_number():
    configs = [Config({"BLOCK_M": 16, "MODE": "a"}), Config({"BLOCK_M": 16, "MODE": "b"})]

    assert list(choices((tuned(configs),))) == [(("BLOCK_M", 16),), (("BLOCK_M", 16), ("config", 1))]


def test_the_case_decides_which_configuration_runs():
    assert blocks(tuned()) == {16}
    assert blocks(tuned(), OF_32) == {32}


def test_a_configuration_that_pruning_rules_out_is_never_run():
    kernel = tuned(
        prune_configs_by={
            "early_config_prune": lambda found, named, **_: [c for c in found if c.kwargs["BLOCK_M"] < 32]
        }
    )
    assert blocks(kernel, OF_32) == {16}


@triton.jit
def narrow(x, BLOCK: constexpr):
    triton.language.static_assert(BLOCK <= 16)
    at = triton.language.arange(0, BLOCK)
    triton.language.store(x + at, at * 0 + BLOCK)


def test_a_configuration_that_the_kernel_itself_rules_out_is_passed_over():
    kernel = triton.autotune([Config({"BLOCK": n}) for n in (32, 16, 8)], key=[])(narrow)
    x = torch.zeros(32)
    with configured(choices([kernel]), (("BLOCK", 32),)):
        kernel[(1,)](x)

    assert x.tolist() == [16.0] * 16 + [0.0] * 16
    wide = triton.autotune([Config({"BLOCK": n}) for n in (32, 64)], key=[])(narrow)
    with configured(choices([wide]), ()), pytest.raises(InterpreterError, match="AssertionError"):
        wide[(1,)](x)


def test_a_declared_kernel_is_not_timed_where_the_interpreter_is_not_open(monkeypatch):
    monkeypatch.setattr(Autotuner, "run", getattr(Autotuner.run, "one_config", Autotuner.run))
    kernel = tuned(do_bench=lambda *_, **__: pytest.fail("it was timed"))

    assert blocks(kernel) == {16}
    assert blocks(kernel, OF_32) == {32}


def test_a_perf_model_prunes_too():
    kernel = tuned(prune_configs_by={"perf_model": lambda BLOCK_M, **_: -BLOCK_M, "top_k": 1})

    assert blocks(kernel) == {32}


def test_the_hook_of_a_configuration_comes_before_its_launch_alone():
    seen = []
    configs = [
        Config({"BLOCK_M": m, "BLOCK_N": 16}, pre_hook=lambda given: seen.append(given["BLOCK_M"])) for m in (16, 32)
    ]
    blocks(tuned(configs), OF_32)

    assert set(seen) == {32}


def test_nothing_is_reset_or_restored_because_nothing_is_repeated():
    x = torch.ones(4)
    configs = [Config({"BLOCK": 4}), Config({"BLOCK": 8})]
    kernel = tuned(configs, fill, restore_value=["x"], pre_hook=lambda *_, **__: pytest.fail("a benchmark was begun"))
    kernel[(1,)](x, 2, 1.0, FLAG=True)

    assert x.tolist() == [42, 42, 1, 1]
    assert len(kernel.configs) == 2


def test_heuristics_above_and_below_the_autotuner_compute_their_values():
    below = triton.heuristics({"FLAG": lambda given: given["BLOCK"] > 4})(fill)
    kernel = triton.heuristics({"n": lambda given: 3})(tuned([Config({"BLOCK": 8}), Config({"BLOCK": 4})], below))
    x = torch.zeros(4)
    kernel[(1,)](x, value=1.0)

    assert x.tolist() == [82, 82, 82, 0]


def test_a_function_that_launches_an_autotuned_kernel_names_it():
    kernel, seen = tuned(), []

    def attention(p):
        o, lse = torch.empty_like(p.q), torch.empty(p.q.shape[:3])

        def noted(meta):
            seen.append(meta["BLOCK_M"])
            return grid(p, meta)

        kernel[noted](**arguments(p, type("Out", (), {"o": o, "lse": lse})))
        return o, lse

    declared = subject(supports=SUPPORTS, contract=Contract(gradients=frozenset()), autotuned=kernel)(attention)

    assert len(declared.supports.launch_configs) == 2
    assert failures(declared, dataclasses.replace(CASE, launch=OF_32)) == set()
    assert set(seen) == {32}


def test_each_configuration_of_two_kernels_is_one_of_either():
    other = triton.autotune([Config({"BLOCK": 4}), Config({"BLOCK": 8})], key=[])(fill)

    assert list(choices((tuned(), other)))[1:3] == [
        (("attention_kernel_BLOCK_M", 32), ("attention_kernel_BLOCK_N", 16)),
        (("fill_BLOCK", 4),),
    ]


def test_what_is_not_autotuned_is_refused():
    with pytest.raises(
        UsageError, match=r"autotuned=attention_kernel is not accepted: a kernel decorated with @triton.autotune"
    ):
        subject(autotuned=attention_kernel)
    with pytest.raises(UsageError, match=r"autotuned=... is not accepted with Supports"):
        subject(autotuned=tuned(), supports=dataclasses.replace(SUPPORTS, launch=(("BLOCK_M", (16,)),)))
    with pytest.raises(UsageError, match="kernels of different names"):
        subject(autotuned=(tuned(), tuned()))
