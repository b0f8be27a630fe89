"""Overflow at pairs that the mask removes, in kernels that mask the logits only and in kernels that set dS to 0 there; and a stored delta."""

import math

import pytest
import torch

from flashverify.numerics import BoundInputs, Form, backward_bounds
from flashverify_oracles import float64
from tests.numerics.bounding import bounds
from tests.numerics.regimes import draw

SCALE = 0.25
LOGITS = Form(gap_c=1.0, kappa=2.0, architecture="ieee")
MASKED = Form(gap_c=1.0, kappa=2.0, architecture="ieee", masked_ds=True)
CAUSAL = torch.ones(6, 6, dtype=torch.bool).tril()


def problem(seed=0):
    q, k, v, do = draw("normal", torch.float32, (1, 1, 1, 6, 6, 8, 8), seed)
    return q, k, v, do


def gradients(form, q, k, v, do, *, vis=CAUSAL, **asked):
    return bounds(q, k, v, do, vis=vis, dtype="fp32", form=form, scale=SCALE, **asked)[1]


def kernel(q, k, v, do, *, vis=CAUSAL, masked):
    """(dQ, dK) of one tile in fp32; dS of invisible pairs is set to 0, or is P (dP - delta) with P = 0."""
    q, k, v, do = (x.float() for x in (q, k, v, do))
    z = ((q @ k.mT) * SCALE).masked_fill(~vis, -math.inf)
    p = torch.where(vis, (z - z.logsumexp(-1, keepdim=True)).exp(), 0.0)
    delta = (do * (p @ v)).sum(-1, keepdim=True)
    ds = p * (do @ v.mT - delta)
    ds = torch.where(vis, ds, 0.0) if masked else ds
    return {"dq": ds @ k * SCALE, "dk": ds.mT @ q * SCALE}


def spikes(seed):
    """A problem with elements of V, dO, Q and K whose products leave fp32, most of them at invisible pairs."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v, do = problem(seed)
    for tensor, largest in ((q, 1e15), (k, 1e15), (v, 1e30), (do, 1e25), (v, 1e38), (do, 1e38)):
        if torch.rand((), generator=generator) < 0.4:
            row, channel = (int(torch.randint(n, (), generator=generator)) for n in (6, 8))
            tensor[0, 0, row, channel] = largest
    return q, k, v, do


def test_an_overflow_at_an_invisible_pair_exempts_only_kernels_that_mask_the_logits_only():
    q, k, v, do = problem()
    v[0, 0, 5, 0], do[0, 0, 0, 0] = 1e30, 1e20  # row 0 does not see key 5
    plain, masked = gradients(LOGITS, q, k, v, do), gradients(MASKED, q, k, v, do)
    assert plain.dq.exempt[0, 0, 0].all()
    assert plain.dk.exempt[0, 0, 5].all()
    assert not any(x.exempt.any() for x in (masked.delta, masked.dq, masked.dk, masked.dv))
    for name in ("delta", "dq", "dk", "dv"):
        free = getattr(plain, name).exempt
        assert torch.equal(getattr(plain, name).bound[~free], getattr(masked, name).bound[~free])


def test_an_overflow_at_a_key_that_no_row_sees_exempts_only_kernels_that_mask_the_logits_only():
    q, k, v, do = problem()
    v[0, 0, 5, 0], do[0, 0, 0, 0] = 1e30, 1e20
    seen = CAUSAL.clone()
    seen[:, 5] = False
    plain, masked = (gradients(form, q, k, v, do, vis=seen) for form in (LOGITS, MASKED))
    assert plain.dk.exempt[0, 0, 5].all()
    assert not masked.dk.exempt.any()
    assert not masked.dq.exempt.any()
    assert float(masked.dk.bound[0, 0, 5].max()) == 0.0


def test_an_overflow_in_a_row_that_sees_nothing_counts_as_one_at_any_invisible_pair():
    q, k, v, do = problem()
    v[0, 0, 2, 0], do[0, 0, 0, 0] = 1e30, 1e20
    seen = CAUSAL.clone()
    seen[0] = False
    seen[:, 5] = False
    plain, masked = (gradients(form, q, k, v, do, vis=seen) for form in (LOGITS, MASKED))
    got = kernel(q, k, v, do, vis=seen, masked=False)["dk"]
    assert torch.isnan(got[0, 0, 2]).all()
    assert plain.dq.exempt[0, 0].any(-1).tolist() == [True] + [False] * 5
    assert plain.dk.exempt[0, 0].any(-1).tolist() == [False, False, True] + [False] * 3
    assert not any(x.exempt.any() for x in (masked.delta, masked.dq, masked.dk, masked.dv, plain.delta, plain.dv))
    assert float(masked.dq.total[0, 0, 0].max()) == 0.0
    v[0, 0, 2, 0], v[0, 0, 5, 0] = 1.0, 1e30  # no row sees key 5
    hidden = gradients(LOGITS, q, k, v, do, vis=seen)
    assert hidden.dq.exempt[0, 0, 0].all()
    assert hidden.dk.exempt[0, 0].any(-1).tolist() == [False] * 5 + [True]


def test_an_overflow_at_a_visible_pair_is_exempt_in_every_kernel():
    q, k, v, do = problem()
    v[0, 0, 2, 0], do[0, 0, 4, 0] = 1e30, 1e20
    for form in (LOGITS, MASKED):
        found = gradients(form, q, k, v, do)
        assert found.dq.exempt[0, 0, 4].all()
        assert found.dk.exempt[0, 0, 2].all()


def test_a_delta_that_overflows_reaches_the_keys_that_its_row_sees():
    q, k, v, do = problem()
    v[0, 0, 2, :], do[0, 0, 3, :] = 1e20, 1e20  # rows from 2 on see key 2, row 3 alone has a large dO
    asked = {"bias_shape": (1, 1, 6, 6), "biases": (torch.zeros(1, 1, 6, 6),)}
    plain, masked = (gradients(form, q, k, v, do, **asked) for form in (LOGITS, MASKED))
    assert plain.dk.exempt.all()
    assert masked.delta.exempt[0, 0, 3]
    assert masked.dq.exempt[0, 0, 3].all()
    assert masked.dk.exempt[0, 0, :4].all()
    assert not masked.dk.exempt[0, 0, 4:].any()
    assert plain.dbias.exempt[0, 0, 3].all()
    assert masked.dbias.exempt[0, 0, 3].tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize("spoiled", ["q", "do"])
def test_an_operand_that_is_not_finite_reaches_every_key(spoiled):
    named = dict(zip(("q", "k", "v", "do"), problem(), strict=True))
    named[spoiled][0, 0, 1, 0] = math.nan
    assert gradients(MASKED, **named).dk.exempt.all()


def test_under_a_softcap_a_logit_that_overflows_reaches_every_key():
    q, k, v, do = problem()
    q[0, 0, 1, 0], k[0, 0, 0, 0] = 1e25, 1e25
    capped, uncapped = (gradients(MASKED, q, k, v, do, softcap=cap) for cap in (30.0, None))
    assert capped.dk.exempt.all()
    assert uncapped.dk.exempt[0, 0, :2].all()
    assert not uncapped.dk.exempt[0, 0, 2:].any()


@pytest.mark.slow
def test_what_a_kernel_leaves_non_finite_is_exempt_and_a_missing_mask_is_seen():
    caught = exempted = 0
    for seed in range(100):
        tensors = spikes(seed)
        for form, masked in ((LOGITS, False), (MASKED, True)):
            found = gradients(form, *tensors)
            for name, got in kernel(*tensors, masked=masked).items():
                bound = getattr(found, name)
                lost = ~torch.isfinite(got) & ~bound.exempt & ~bound.may_overflow
                assert not lost.any(), (seed, masked, name)
                exempted += int((~torch.isfinite(got)).sum())
        wrong = kernel(*tensors, masked=False)
        caught += any(
            bool((torch.isnan(wrong[name]) & ~getattr(found, name).exempt & ~getattr(found, name).may_overflow).any())
            for name in wrong
        )
    assert caught >= 5
    assert exempted > 100


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_a_delta_that_holds_dlse_is_off_by_one_rounding_more(size):
    q, k, v, do = (x.float() for x in draw("normal", torch.float32, (2, 4, 2, 33, 40, 16, 16), 5))
    o = torch.softmax((q @ k.repeat_interleave(2, 1).mT) * SCALE, -1) @ v.repeat_interleave(2, 1)
    dlse = torch.randn(do.shape[:3], generator=torch.Generator().manual_seed(1)) * size
    dlse[0, 0, :16] = (do * o).sum(-1)[0, 0, :16]  # cancels
    exact = (do.double() * o.double()).sum(-1) - dlse.double()
    stored = (do * o).sum(-1) - dlse
    asked = {"do": do, "o": o, "scale": SCALE}

    def total(form):
        return conditional(form, q, k, v, dlse, **asked)

    folded, plain = total(Form(stored_delta="minus_dlse")), total(Form())
    error = (stored.double() - exact).abs()
    assert bool((error <= folded).all())
    assert bool((folded >= plain).all())
    assert bool((folded <= plain * (1 + 2.0**-23) + 2.0**-23 * exact.abs() + 2.0**-120).all())
    if size == 1e4:
        assert bool((error > plain).any()), "the subtraction's rounding is part of the bound"
    for wrong in ((do * o).sum(-1), stored + 2 * dlse, stored.to(torch.bfloat16)):
        assert bool(((wrong.double() - exact).abs() > folded).any())


def conditional(form, q, k, v, dlse, *, do, o, scale):
    """`bound + E64` of delta, given O."""

    truth = float64.forward(q, k, v, scale=scale)
    g = float64.backward(q, k, v, do, scale=scale, dlse=dlse, forward=truth, given_o=o, given_lse=truth.lse)
    made = BoundInputs.of(q, k, v, scale=scale, dtype="fp32", form=form)
    return backward_bounds(made, do=do, o=o, lse=truth.lse, dq=g.dq, dk=g.dk, dv=g.dv, dlse=dlse).delta.total


def test_rows_that_see_nothing_hold_an_exact_delta():
    q, k, v, do = problem()
    dlse = torch.full((1, 1, 6), 3.0)
    vis = CAUSAL.clone()
    vis[2] = False
    found = gradients(Form(stored_delta="minus_dlse"), q, k, v, do, vis=vis, dlse=dlse)
    assert float(found.delta.total[0, 0, 2]) == 0.0
    assert bool((found.delta.total[0, 0, [0, 1, 3]] > 0).all())


def test_the_form_refuses_what_it_does_not_know():
    for field, value, accepted in (
        ("masked_ds", 1, "True, False"),
        ("stored_delta", "minus", "'plain', 'minus_dlse'"),
    ):
        with pytest.raises(ValueError, match=f"{field}={value!r}.*{accepted}"):
            Form(**{field: value})
