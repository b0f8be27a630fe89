"""The algorithms of the literature within the bounds of their forms."""

from dataclasses import replace

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.subjects import load_subject
from flashverify_kernels.algorithms import (
    LiveBlocks,
    Setting,
    paper_backward,
    paper_forward,
    standard_backward,
    standard_forward,
)

MASKS = ("", "causal=top-left", "causal=bottom-right", "klen=33,0", "causal=bottom-right klen=41,7")
OUTPUTS = {
    "standard": {"o", "lse", "dq", "dk", "dv"},
    "paper-flash": {"o", "lse", "dq", "dk", "dv"},
    "paper-block-sparse": {"o", "lse", "dq", "dk", "dv"},
    "paper-varlen": {"o", "lse", "dq", "dk", "dv"},
    "two-pass": {"o", "lse", "delta", "dq", "dk", "dv"},
    "rabe-staats": {"o", "lse"},
}
PACKED = ("packed=0,0,21,21,36/0,9,9,20,53", "packed=0,37/0,50", "packed=0,5,37/0,33,47")
PACKED_SMALL = "packed=0,5,21/0,9,37"
REGIMES = ("normal", "logits-1e3", "v-cancelling", "negative", "ascending")


def cases(name):
    """Masks met by regimes in turn; heads, tiles and layouts alternate."""
    for n, dtype in enumerate(("fp16", "bf16", "fp32") * 5):
        mask, regime = MASKS[n % 5], REGIMES[(n // 5 + n) % 5]
        launch = "launch=block_m:16,block_n:64" if n % 2 else "layout=bshd"
        heads = f"heads_q=4 heads_kv={2 + 2 * (n % 2)}"
        backward = "backward=no" if name == "rabe-staats" else ""
        dropout = "dropout=0.3" if load_subject(name).supports.dropout and n % 3 == 1 else ""
        if name == "paper-block-sparse":
            launch = f"blocks={('32,16', '16,64', '48,32')[n // 3 % 3]},160,{n},{n % 2},{n // 2 % 2}"
        sizes = "batch=2 seq_q=37 seq_k=53 dim_qk=24 dim_v=16"
        if name == "paper-varlen":
            mask, sizes = mask.partition("klen")[0], f"{sizes.replace('batch=2', 'batch=1')} {PACKED[n % 3]}"
        yield parse_case(
            f"fv1 {heads} {sizes} dtype={dtype} regime={regime} seed={n} {mask} {launch} {dropout} {backward}"
        )


_FIRST = 8
"""They meet every mask, regime, dtype, launch, layout and limits of packed sequences; the other pairs of these are thorough."""


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("rest", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["first", "rest"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_it_stays_within_its_bounds(name, rest):
    subject = load_subject(name)
    worst, judged = {}, 0
    for n, case in enumerate(cases(name)):
        if (n >= _FIRST) != rest:
            continue
        result = judge_case(subject, case, Plan.only("accuracy", case) if n % 4 else Plan.run())
        judged += 1
        assert not result.failures, (result.case, result.failures)
        assert not any(v.status.value == "error" for v in result.verdicts), result.verdicts
        assert result.evidence == "interpreter"
        for stats in result.stats:
            worst[stats.output] = max(worst.get(stats.output, 0.0), float.fromhex(stats.worst))

    assert judged == (15 - _FIRST if rest else _FIRST)
    assert set(worst) == OUTPUTS[name]
    assert max(worst.values()) > 0.3, "the cases say nothing"


def test_packed_sequences_are_each_alone_bit_for_bit():
    rows, keys, generator = (0, 5, 5, 24), (0, 9, 12, 41), torch.Generator().manual_seed(1)
    q, k, v, do = (
        torch.randn(1, heads, n, 16, generator=generator) for heads, n in ((4, 27), (2, 44), (2, 44), (4, 27))
    )
    cu = tuple(torch.tensor(limits, dtype=torch.int32) for limits in (rows, keys))
    shared = {"scale": 0.25, "causal": "bottom-right", "block_m": 16, "block_n": 16}

    def run(setting, q, k, v, do):
        forward = paper_forward(q, k, v, setting)
        return forward.o, forward.lse[..., None], *paper_backward(do, q, k, v, forward, setting)

    whole = run(Setting(cu=cu, **shared), q, k, v, do)
    for s in range(3):
        i, j = slice(rows[s], rows[s + 1]), slice(keys[s], keys[s + 1])
        alone = run(Setting(**shared), q[:, :, i], k[:, :, j], v[:, :, j], do[:, :, i])
        for x, y, place in zip(whole, alone, (i, i, i, j, j), strict=True):
            assert torch.equal(x[:, :, place], y)


PLACES = {
    "keys begin where queries do": ("paper_forward_kernel", "place(cu_k_ptr, n //", "place(cu_q_ptr, n //"),
    "dK and dV begin where queries do": ("paper_backward_kernel", "place(cu_k_ptr, hk", "place(cu_q_ptr, hk"),
    "LSE of the first sequence": ("paper_backward_kernel", "m_ptr + first_q, l_ptr + first_q,", "m_ptr, l_ptr,"),
}


@pytest.mark.parametrize("defect", PLACES)
def test_a_wrong_place_in_packed_sequences_is_found(edited, defect):
    edited(*PLACES[defect])
    case = parse_case(
        f"fv1 heads_q=2 seq_q=21 seq_k=41 dim_qk=16 dim_v=16 dtype=fp32 {PACKED_SMALL} causal=bottom-right seed=3"
    )

    found = {v.output for v in judge_case(load_subject("paper-varlen"), case, Plan.only("accuracy", case)).failures}
    forward = "forward" in PLACES[defect][0]
    assert found >= ({"o", "lse"} if forward else {"dq"})
    assert forward or not found & {"o", "lse"}


def test_packed_sequences_are_refused_where_an_algorithm_has_none():
    q, cu = torch.zeros(1, 1, 4, 16), torch.tensor([0, 4], dtype=torch.int32)

    with pytest.raises(ValueError, match="cu: only Algorithms 2 and 4 take packed sequences"):
        standard_forward(q, q, q, Setting(scale=1.0, cu=(cu, cu)))


def test_the_form_says_where_the_division_is():
    subject = load_subject("paper-flash")
    case = next(cases("paper-flash"))

    assert subject.form(case).normalise == "every_block"
    assert load_subject("two-pass").form(case).normalise == "end"
    assert load_subject("standard").form(case).normalise == "before_cast"


def problem(heads=2):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, h, 40, 16, generator=generator) for h in (heads, 2, 2, heads)]


def float64(q, k, v, do, visible):
    """O and the gradients by autograd; rows that see no key are 0."""
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    keys, values = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in wide[1:])
    p = (wide[0] @ keys.mT / 4).masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num()
    o = p @ values
    o.backward(do.double())
    return [o, *(x.grad for x in wide)]


@pytest.mark.slow
def test_the_standard_backward_is_that_of_float64():
    q, k, v, do = problem(heads=4)
    setting = Setting(scale=0.25, causal="top-left", block_m=16, block_n=16)

    forward = standard_forward(q, k, v, setting)
    found = [forward.o, *standard_backward(do, q, k, v, forward, setting)]

    for got, want in zip(found, float64(q, k, v, do, torch.ones(40, 40).tril().bool()), strict=True):
        assert (got - want).abs().max() <= 1e-6


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 4), (2, 4)], ids=str)
@pytest.mark.parametrize(("rows", "keys"), [(16, 16), (32, 16), (48, 64)])
def test_dead_blocks_are_invisible(shape, rows, keys):
    q, k, v, do = problem(heads=4)
    counts = -(-40 // rows), -(-40 // keys)
    live = torch.rand(*shape, *counts, generator=torch.Generator().manual_seed(1)) < 0.5
    setting = Setting(scale=0.25, block_m=16, block_n=16, blocks=LiveBlocks(live=live, rows=rows, keys=keys))

    forward = paper_forward(q, k, v, setting)
    found = [forward.o, *paper_backward(do, q, k, v, forward, setting)]

    visible = live.repeat_interleave(rows, -2).repeat_interleave(keys, -1)[..., :40, :40]
    for got, want in zip(found, float64(q, k, v, do, visible), strict=True):
        assert (got - want).abs().max() <= 2e-6
    assert torch.equal(forward.lse == -torch.inf, (~visible.any(-1)).expand(2, 4, 40))


@pytest.mark.slow
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


@pytest.mark.parametrize("alive", [False, True])
def test_a_dead_block_that_is_computed_or_a_live_one_that_is_not_is_found(monkeypatch, alive):
    subject = load_subject("paper-block-sparse")
    case = parse_case("fv1 seq_q=64 seq_k=64 blocks=16,16,128,1")
    setting = subject._setting

    def wrong(problem):
        live = problem.blocks.clone()
        live[0, 0].view(-1)[int((live[0, 0].view(-1) != alive).nonzero()[0])] = alive
        return setting(replace(problem, blocks=live))

    assert not judge_case(subject, case, Plan.only("accuracy", case)).failures
    monkeypatch.setattr(subject, "_setting", wrong)

    assert {v.output for v in judge_case(subject, case, Plan.only("accuracy", case)).failures} >= {"o", "lse", "dv"}


def test_the_tiles_are_the_blocks_or_parts_of_them():
    subject = load_subject("paper-block-sparse")

    assert subject.supports.refusal(parse_case("fv1 blocks=32,32,128,1 launch=block_m:64,block_n:16"))
    for blocks, block_n in (("16,64", 64), ("32,48", 16), ("16,256", 64)):
        case = parse_case(f"fv1 blocks={blocks},128,1")
        assert subject.supports.refusal(case) is None
        assert subject.form(case).block_n == block_n


def test_unknown_launch_parameters_are_refused():
    subject = load_subject("two-pass")

    assert "block_m" in subject.supports.refusal(parse_case("fv1 launch=block_m:16 backward=no"))
