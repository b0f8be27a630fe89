"""Merges of partial results as subjects: right ones pass, with empty parts too, and a planted defect each is found."""

import pytest
import torch

from flashverify import adapters, judge_case, parse_case
from flashverify.adapters.partials import partial_results
from flashverify.case.memory.materialize import materialize
from flashverify.errors import UsageError
from tests.adapters.attention import CHECKS
from tests.adapters.merging import merged, update

NATURAL = 0.6931471805599453


def state(o_a, lse_a, o_b, lse_b):
    return merged(torch.stack((o_a, o_b)), torch.stack((lse_a, lse_b)), "2")


def states(o, lse):
    return merged(o.movedim(1, 0), lse.movedim(1, 0), "2")


def attn_states(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
    both = torch.stack((prefix_lse, suffix_lse))
    o, lse = merged(torch.stack((prefix_output, suffix_output)), both.masked_fill(both.isposinf(), float("-inf")).mT)
    output.copy_(o)
    output_lse.copy_(lse.T)


HERE = {"device": "cpu"}
KERNELS = {
    "state": (state, lambda kernel: adapters.merge_state(kernel, **HERE)),
    "states": (states, lambda kernel: adapters.merge_states(kernel, partial_dtype="fp32", **HERE)),
    "attn_states": (attn_states, lambda kernel: adapters.merge_attn_states(kernel, empty_lse=float("inf"), **HERE)),
    "ring": (update, lambda kernel: adapters.ring_merge(kernel, **HERE)),
    "zigzag": (update, lambda kernel: adapters.ring_merge(kernel, zigzag=True, **HERE)),
}
SIZES = "batch=2 heads_q=4 heads_kv=2 seq_q=7 seq_k=9 dim_qk=16 dim_v=8 backward=no"
CASES = {
    "state": (
        f"fv1 {SIZES} dtype=bf16 causal=bottom-right klen=9,4 launch=first_percent:50",
        f"fv1 {SIZES} dtype=fp32 klen=0,9 padding=nan softcap=1 bias=full launch=first_percent:100",
    ),
    "states": (f"fv1 {SIZES} dtype=fp16 bitmap=99,1 launch=splits:5",),
    "attn_states": (f"fv1 {SIZES} dtype=fp16 causal=top-left klen=9,4 launch=first_percent:25",),
    "ring": (f"fv1 {SIZES} dtype=fp32 causal=bottom-right regime=ascending launch=blocks:4",),
    "zigzag": (f"fv1 {SIZES} dtype=fp32 causal=bottom-right launch=blocks:4",),
}


def failures(name, kernel, text):
    mine, case = KERNELS[name][1](kernel), parse_case(text)
    assert mine.supports.refusal(case) is None
    return judge_case(mine, case, checks=CHECKS).failures


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in CASES.items() for text in texts])
def test_a_right_merge_is_right(name, text):
    assert failures(name, KERNELS[name][0], text) == ()


def test_a_zigzag_ring_gives_half_of_the_rows_where_the_others_see_nothing():
    seen = []

    def step(out, lse, block_out, block_lse, slice_=None):
        seen.append(None if slice_ is None else block_out.shape[1])
        return update(out, lse, block_out, block_lse, slice_)

    assert failures("zigzag", step, CASES["zigzag"][0]) == ()
    assert {None, 4} <= set(seen)


def in_natural_weights(o_a, lse_a, o_b, lse_b):
    o, _ = merged(torch.stack((o_a, o_b)), torch.stack((lse_a, lse_b)), "e")
    return o, state(o_a, lse_a, o_b, lse_b)[1]


def without_the_empty(o, lse):
    largest = lse.amax(1)  # -inf - -inf is NaN in a row that sees nothing
    each = torch.exp2(lse - largest.unsqueeze(1))
    total = each.sum(1)
    return ((each / total.unsqueeze(1)).unsqueeze(-1) * o.float()).sum(1).to(o.dtype), largest + total.log2()


def rounded(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
    attn_states(
        output, prefix_output, prefix_lse.bfloat16().float(), suffix_output, suffix_lse.bfloat16().float(), output_lse
    )


def never_rescaled(out, lse, block_out, block_lse, slice_=None):
    new, total = update(out, lse, block_out, block_lse, slice_)
    return new if out is None else out + (new - out) * 0.99, total


def unsliced(out, lse, block_out, block_lse, slice_=None):
    if slice_ is None:
        return update(out, lse, block_out, block_lse)
    missing = out.shape[1] - block_out.shape[1]
    below = torch.nn.functional.pad(block_lse, (0, missing), value=float("-inf"))
    return update(out, lse, torch.nn.functional.pad(block_out, (0, 0, 0, 0, 0, missing)), below)


WRONG = {
    "state": in_natural_weights,
    "states": without_the_empty,
    "attn_states": rounded,
    "ring": never_rescaled,
    "zigzag": unsliced,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_defect_is_found(name):
    text = CASES[name][0] if name != "states" else f"fv1 {SIZES} dtype=fp16 klen=0,9 launch=splits:3"

    assert {v.check for v in failures(name, WRONG[name], text)} & {"accuracy", "nonfinite"}


def test_partial_results_join_to_the_whole():
    problem, _ = materialize(
        parse_case(f"fv1 {SIZES} dtype=fp32 causal=bottom-right klen=9,4 padding=nan"), device="cpu"
    )
    (whole, lse), *parts = partial_results(problem, [(0, 9), (0, 4), (4, 4), (4, 9)])
    o, joined = merged(torch.stack([o for o, _ in parts]).float(), torch.stack([lse for _, lse in parts]).float())

    torch.testing.assert_close(o, whole.float())
    torch.testing.assert_close(joined, lse.float())
    assert bool(parts[1][1].isneginf().all())


@pytest.mark.parametrize(
    ("given", "message"), [({"lse_base": "10"}, "lse_base='10'"), ({"partial_dtype": "fp64"}, "partial_dtype='fp64'")]
)
def test_bad_arguments_are_refused(given, message):
    with pytest.raises(UsageError, match=f"{message} is not accepted"):
        adapters.merge_state(state, **given)
