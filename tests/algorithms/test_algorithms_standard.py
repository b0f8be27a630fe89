"""The backward of the standard algorithm is judged: defects of its steps are failures."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.subjects import load_subject
from flashverify_kernels.algorithms import Setting, launch_standard, standard_backward, standard_forward

CASE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=20 seq_k=37 dim_qk=16 dim_v=24 klen=33,37 causal=bottom-right dtype={}"


def failures(dtype):
    case = parse_case(CASE.format(dtype))
    return {v.output for v in judge_case(load_subject("standard"), case, Plan.only("accuracy", case)).failures}


DEFECTS = {
    "no row sum": (lambda dp, p: 0.0, {"dq", "dk"}),
    "a key left out of the row sum": (lambda dp, p: (p.float() * dp)[..., 1:].sum(-1, keepdim=True), {"dq", "dk"}),
    "a row sum of the other rows": (lambda dp, p: (p.float() * dp).sum(-1, keepdim=True).roll(1, -2), {"dq", "dk"}),
}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_nothing_fails_as_it_is(dtype):
    assert not failures(dtype)


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_wrong_row_sum_is_found(monkeypatch, name, dtype):
    delta, outputs = DEFECTS[name]
    launch = launch_standard.launch

    def wrong(kernel, programs, **arguments):
        if kernel is launch_standard.score_gradient_kernel:
            p, dp = arguments["p_ptr"], arguments["dp_ptr"]
            arguments["ds_ptr"].copy_(p.float() * (dp - delta(dp=dp, p=p)))
        else:
            launch(kernel, programs, **arguments)

    monkeypatch.setattr(launch_standard, "launch", wrong)

    assert failures(dtype) == outputs


@pytest.mark.parametrize(("place", "outputs"), [(0, {"dv"}), (1, {"dq"}), (2, {"dk"})], ids=["dV", "dQ", "dK"])
def test_a_product_with_another_scale_is_found(monkeypatch, place, outputs):
    product, calls = launch_standard._product, []

    def wrong(a, b, c, scale, shapes, *, transposed):
        calls.append(c)
        product(a, b, c, scale * (1.001 if len(calls) == place + 2 else 1), shapes, transposed=transposed)  # after P V

    monkeypatch.setattr(launch_standard, "_product", wrong)

    assert failures("fp32") == outputs


def test_a_group_whose_last_head_is_left_out_is_found(monkeypatch):
    def wrong(self, x, dtype):
        return x.view(self.batch, self.kv_heads, self.group, *x.shape[2:])[:, :, :-1].sum(2).to(dtype)

    monkeypatch.setattr(launch_standard.Shapes, "of_groups", wrong)

    assert failures("fp32") == {"dk", "dv"}


@pytest.mark.parametrize(
    "case",
    [
        "heads_q=4 heads_kv=2 seq_q=25 seq_k=24 dim_v=64 klen=12 regime=outlier seed=187 edits=do:0,2,22,63:-0x1.fep+127",
        "seq_q=17 seq_k=26 dim_v=24 scale=-1 klen=21 regime=v-constant edits=k:0,0,11,4:-0x1.fep+127",
    ],
    ids=["sum P dP", "logit"],
)
def test_what_overflows_reaches_no_key_beyond_the_length(case):
    case = parse_case(f"fv1 dtype=bf16 {case}")

    assert not judge_case(load_subject("standard"), case, Plan.only("accuracy", case)).failures


def test_the_sum_over_a_group_does_not_depend_on_the_number_of_keys():
    generator = torch.Generator().manual_seed(0)
    q, do = (torch.randn(1, 34, 4, 72, generator=generator) for _ in range(2))
    k, v = (torch.randn(1, 2, 24, 72, generator=generator) for _ in range(2))
    found = []
    for n in (17, 24):
        setting = Setting(scale=0.25, key_lengths=torch.tensor([17], dtype=torch.int32), block_m=16, block_n=16)
        inputs = q, k[:, :, :n], v[:, :, :n]
        found.append(standard_backward(do, *inputs, standard_forward(*inputs, setting), setting))

    for short, long in zip(found[0][1:], found[1][1:], strict=True):
        assert torch.equal(short, long[:, :, :17])
        assert not long[:, :, 17:].any()
