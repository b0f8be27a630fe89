"""The algorithms of the literature within the bounds of their forms."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.subjects import load_subject
from flashverify_kernels.algorithms import Setting, standard_backward, standard_forward

MASKS = ("", "causal=top-left", "causal=bottom-right", "klen=33,0", "causal=bottom-right klen=41,7")
REGIMES = ("normal", "logits-1e3", "v-cancelling", "negative", "ascending")


def cases(name):
    """Masks met by regimes in turn; heads, tiles and layouts alternate."""
    for n, dtype in enumerate(("fp16", "bf16", "fp32") * 5):
        mask, regime = MASKS[n % 5], REGIMES[(n // 5 + n) % 5]
        launch = "launch=block_m:16,block_n:64" if n % 2 else "layout=bshd"
        heads = f"heads_q=4 heads_kv={2 + 2 * (n % 2)}"
        backward = "" if name == "paper-flash" else "backward=no"
        sizes = "batch=2 seq_q=37 seq_k=53 dim_qk=24 dim_v=16"
        yield parse_case(f"fv1 {heads} {sizes} dtype={dtype} regime={regime} seed={n} {mask} {launch} {backward}")


@pytest.mark.parametrize("name", ["standard", "paper-flash", "two-pass"])
def test_it_stays_within_its_bounds(name):
    subject = load_subject(name)
    worst, judged = {}, 0
    for case in cases(name):
        if subject.supports.refusal(case):
            assert (name, case.dtype) == ("standard", "fp16")
            continue
        result = judge_case(subject, case, Plan.run())
        judged += 1
        assert not result.failures, (result.case, result.failures)
        assert not any(v.status.value == "error" for v in result.verdicts), result.verdicts
        assert result.evidence == "interpreter"
        for stats in result.stats:
            worst[stats.output] = max(worst.get(stats.output, 0.0), float.fromhex(stats.worst))

    assert judged >= 10
    assert set(worst) >= ({"o", "lse", "dq", "dk", "dv"} if name == "paper-flash" else {"o", "lse"})
    assert max(worst.values()) > 0.3, "the cases say nothing"


def test_the_form_says_where_the_division_is():
    subject = load_subject("paper-flash")
    case = next(cases("paper-flash"))

    assert subject.form(case).normalise == "every_block"
    assert load_subject("two-pass").form(case).normalise == "end"


def test_the_standard_backward_is_that_of_float64():
    generator = torch.Generator().manual_seed(0)
    q, k, v, do = (torch.randn(1, 2, 40, 16, generator=generator) for _ in range(4))
    setting = Setting(scale=0.25, causal="top-left", block_m=16, block_n=16)

    forward = standard_forward(q, k, v, setting)
    gradients = standard_backward(do, q, k, v, forward, setting)

    wide = [x.double().requires_grad_() for x in (q, k, v)]
    s = (wide[0] @ wide[1].mT / 4).masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf)
    (s.softmax(-1) @ wide[2]).backward(do.double())
    for got, x in zip(gradients, wide, strict=True):
        assert (got - x.grad).abs().max() <= 1e-6
    with pytest.raises(ValueError, match="2 query heads need as many kv heads, got 1"):
        standard_backward(do, q, k[:, :1], v[:, :1], forward, setting)


def test_a_sum_over_blocks_that_forgets_the_old_ones_is_found(monkeypatch):
    subject = load_subject("paper-flash")
    case = next(cases("paper-flash"))
    function = subject._function

    def forgetful(kind):
        def run(q, k, v, setting):
            return function(kind)(q, k[:, :, -32:], v[:, :, -32:], setting)

        return run if kind == "forward" else function(kind)

    monkeypatch.setattr(subject, "_function", forgetful)

    assert judge_case(subject, case, Plan.only("accuracy", case)).failures


def test_unknown_launch_parameters_are_refused():
    subject = load_subject("two-pass")

    assert "block_m" in subject.supports.refusal(parse_case("fv1 launch=block_m:16 backward=no"))
