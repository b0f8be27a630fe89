"""FlexAttention on the CPU: right under masks and modifiers, and wrong where a mod, a block mask or the LSE is."""

import pytest
from torch.nn.attention import flex_attention as flex

from flashverify import judge_case, parse_case
from flashverify.adapters import flex_attention
from flashverify.errors import UsageError

SIZES = "dim_qk=16 dim_v=8 backward=no"
CASES = (
    f"fv1 batch=2 heads_q=4 heads_kv=2 seq_q=9 seq_k=13 dtype=fp32 causal=bottom-right window=3,* prefix=5,0 softcap=1 {SIZES}",
    f"fv1 heads_q=2 heads_kv=1 seq_q=12 seq_k=11 dtype=bf16 packed=0,5,5,9/0,4,6,9 causal=top-left alibi=yes padding=nan {SIZES}",
    f"fv1 batch=2 heads_q=2 heads_kv=2 seq_q=1 seq_k=20 dtype=fp16 bitmap=128,3 bias=head {SIZES}",
)
CHECKS = ("accuracy", "nonfinite", "memory", "padding")


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")]


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """torch compiles even the eager function for an eager backend; seconds for each shape."""
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def failures(kernel, text, **given):
    case = parse_case(text)
    mine = flex_attention(kernel, device="cpu", **given)
    assert mine.supports.refusal(case) is None
    return judge_case(mine, case, checks=CHECKS).failures


@pytest.mark.parametrize(("masked_by", "text"), [*(("block_mask", text) for text in CASES), ("score_mod", CASES[0])])
def test_it_is_right(text, masked_by):
    assert failures(None, text, masked_by=masked_by) == ()


def shifted(mod):
    return lambda b, h, i, j: mod(b, h, i, (j - 1).clamp(min=0))


WRONG = {
    "a mask that is shifted by one": lambda q, k, v, block_mask=None, **given: flex.flex_attention(
        q, k, v, block_mask=flex.create_block_mask(shifted(block_mask.mask_mod), 2, 4, 9, 13, device="cpu"), **given
    ),
    "a score_mod that is left out": lambda q, k, v, score_mod=None, **given: flex.flex_attention(q, k, v, **given),
    "an LSE in base 2": lambda q, k, v, return_lse=False, **given: tuple(
        x * factor for x, factor in zip(in_natural_units(q, k, v, **given), (1, 1.4426950408889634), strict=True)
    ),
}


def in_natural_units(q, k, v, **given):
    o, aux = flex.flex_attention(q, k, v, return_aux=flex.AuxRequest(lse=True), **given)
    return o, aux.lse


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_defect_is_found(name):
    def kernel(q, k, v, *, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False):
        given = {"score_mod": score_mod, "block_mask": block_mask, "scale": scale, "enable_gqa": enable_gqa}
        found = WRONG[name](q, k, v, **given)
        return found if isinstance(found, tuple) else (found, in_natural_units(q, k, v, **given)[1])

    assert {v.check for v in failures(kernel, CASES[0])} >= {"accuracy"}


def test_a_kernel_without_an_lse_is_asked_for_none():
    def kernel(q, k, v, *, score_mod, block_mask, scale, enable_gqa):
        return flex.flex_attention(q, k, v, score_mod, block_mask, scale, enable_gqa)

    assert failures(kernel, CASES[2]) == ()
    assert flex_attention(kernel).contract.lse_base is None


def test_an_unknown_way_to_mask_is_refused():
    with pytest.raises(UsageError, match="masked_by='bias' is not accepted: one of block_mask, score_mod"):
        flex_attention(masked_by="bias")
