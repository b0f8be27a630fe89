"""No NaN, no negative bound, no surprise at the edges: sizes of 0, poison, overflow, extreme scales, chunks."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flashverify.numerics import (
    BackwardBounds,
    BoundInputs,
    Form,
    ForwardBounds,
    OutputBound,
    backward_bounds,
    forward_bounds,
)
from flashverify_oracles import float64
from tests.numerics.regimes import draw

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def bounds(
    q, k, v, do, *, scale, dtype, vis=None, dlse=None, form=None, **options
) -> tuple[ForwardBounds, BackwardBounds]:  # type: ignore[no-untyped-def]
    truth = float64.forward(q, k, v, scale=scale, visible=vis)
    g = float64.backward(q, k, v, do, scale=scale, visible=vis, forward=truth, dlse=dlse)
    problem = BoundInputs.of(q, k, v, scale=scale, dtype=dtype, visible=vis, form=form, **options)
    F = forward_bounds(problem, truth.o, truth.lse)
    B = backward_bounds(problem, do=do, o=truth.o, lse=truth.lse, dq=g.dq, dk=g.dk, dv=g.dv, dlse=dlse, forward=F)
    backward_bounds(problem, do=do, o=truth.o, lse=truth.lse, dq=g.dq, dk=g.dk, dv=g.dv, dlse=dlse)
    return F, B


def outputs(F: ForwardBounds, B: BackwardBounds) -> dict[str, OutputBound]:
    return {"o": F.o, "lse": F.lse, "delta": B.delta, "dq": B.dq, "dk": B.dk, "dv": B.dv}


magnitudes = st.sampled_from([0.0, 1e-45, 1e-38, 1e-8, 1e-3, 1.0, 30.0, 300.0, 6e4, 1e10, 1e30, 3.3e38])
scales = st.sampled_from([0.0, 1e-45, 1e-40, 1e-3, 0.125, 1.0, -1.0, -0.3, 1e5, 1e20, 3e38])
forms = st.builds(
    Form,
    exp=st.sampled_from(["ex2", "exp", "poly"]),
    prescale_fwd=st.sampled_from(["none", "q", "k"]),
    prescale_bwd=st.sampled_from(["q", "k"]),
    grad_uses_prescaled=st.booleans(),
    ds_from=st.sampled_from(["p_fp32", "p_rounded"]),
    scale_ds=st.sampled_from(["after", "operand", "before"]),
    row_sum=st.sampled_from(["unrounded", "rounded"]),
    normalise=st.sampled_from(["end", "every_block"]),
    dp_init=st.sampled_from(["zero", "minus_delta"]),
    max_source=st.sampled_from(["exponent", "apart"]),
    grad_accum=st.sampled_from(["fp32", "fp16", "bf16"]),
    grad_accum_of=st.sampled_from(["dq", "dkv", "all"]),
    gqa_partial=st.sampled_from(["fp32", "input"]),
    partial_dtype=st.sampled_from(["fp32", "bf16"]),
    rescale_threshold=st.sampled_from([0.0, 8.0]),
    n_splits=st.sampled_from([1, 3]),
    dot=st.sampled_from(["ieee", "tf32", "tf32x3"]),
    lse_base=st.sampled_from(["e", "2"]),
    bwd_lse_base=st.sampled_from(["e", "2"]),
)

ordered = st.builds(
    Form,
    key_order=st.just("ascending"),
    block_n=st.sampled_from([1, 4, 16]),
    exp=st.sampled_from(["ex2", "poly"]),
    prescale_fwd=st.sampled_from(["none", "q", "k"]),
    row_sum=st.sampled_from(["unrounded", "rounded"]),
    dot=st.sampled_from(["ieee", "tf32x3"]),
    architecture=st.sampled_from(["ieee", "sm_90"]),
    kappa=st.sampled_from([2.0, 1e3]),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    dtype=st.sampled_from(list(DTYPES)),
    sizes=st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(1, 2),
        st.integers(0, 5),
        st.integers(0, 20),
        st.integers(0, 8),
        st.integers(0, 8),
    ),
    q_size=magnitudes,
    k_size=magnitudes,
    v_size=magnitudes,
    do_size=magnitudes,
    scale=scales,
    form=st.one_of(forms, ordered),
    mask=st.integers(0, 2),
    poison=st.sampled_from([None, math.nan, math.inf, -math.inf]),
    seed=st.integers(0, 1000),
)
def test_never_nan_never_negative(
    dtype, sizes, q_size, k_size, v_size, do_size, scale, form, mask, poison, seed
) -> None:  # type: ignore[no-untyped-def]
    B, Hkv, group, Sq, Sk, D, Dv = sizes
    q, k, v, do = draw("normal", torch.float64, (B, Hkv * group, Hkv, Sq, Sk, D, Dv), seed)
    biggest = torch.finfo(DTYPES[dtype]).max
    pairs = ((q, q_size), (k, k_size), (v, v_size), (do, do_size))
    q, k, v, do = ((x * size).clamp(-biggest, biggest).to(DTYPES[dtype]) for x, size in pairs)
    if poison is not None:
        for x in (q, k, v, do):
            if x.numel() and (seed + x.numel()) % 2:
                x.view(-1)[seed % x.numel()] = poison
    vis = None if mask == 0 else torch.ones(Sq, Sk, dtype=torch.bool).tril(mask - 3)
    dlse = torch.full((B, Hkv * group, Sq), v_size, dtype=torch.float64).clamp(max=biggest) if seed % 2 else None
    results = outputs(*bounds(q, k, v, do, scale=scale, dtype=dtype, vis=vis, dlse=dlse, form=form))
    for x in results.values():
        assert bool((x.bound >= 0).all())
        assert bool((x.self_error >= 0).all())
        assert not bool(x.self_error.isinf().any())


@pytest.mark.parametrize("zero", range(7))
def test_a_size_of_zero(zero: int) -> None:
    shape = [2, 2, 2, 5, 7, 8, 4]
    shape[zero] = 0
    shape[1] = shape[2] = min(shape[1], shape[2])
    q, k, v, do = draw("normal", torch.float16, tuple(shape), 0)  # type: ignore[arg-type]
    results = outputs(*bounds(q, k, v, do, scale=0.3, dtype="fp16"))
    expected = {"o": do.shape, "lse": q.shape[:3], "delta": q.shape[:3], "dq": q.shape, "dk": k.shape, "dv": v.shape}
    assert {name: x.bound.shape for name, x in results.items()} == expected


@pytest.mark.parametrize("poison", [math.nan, math.inf, 6e4, 0.0])
def test_what_nothing_sees_changes_no_bound(poison: float) -> None:
    q, k, v, do = draw("normal", torch.float16, (1, 4, 2, 9, 12, 16, 8), 3)
    vis = torch.ones(9, 12, dtype=torch.bool).tril()
    vis[:, 10:], vis[7:] = False, False
    clean = outputs(*bounds(q, k, v, do, scale=0.25, dtype="fp16", vis=vis))
    for x, rows in ((q, slice(7, None)), (k, slice(10, None)), (v, slice(10, None)), (do, slice(7, None))):
        x[:, :, rows] = poison
    dirty = outputs(*bounds(q, k, v, do, scale=0.25, dtype="fp16", vis=vis))
    for name in clean:
        assert torch.equal(clean[name].bound, dirty[name].bound), name
        assert not dirty[name].exempt.any()
    assert float(clean["dq"].bound[:, :, 7:].max()) == 0.0
    assert float(clean["dk"].bound[:, :, 9:].max()) == 0.0


def test_a_visible_nan_exempts_what_it_reaches_and_nothing_else() -> None:
    q, k, v, do = draw("normal", torch.float16, (1, 2, 2, 8, 8, 16, 4), 3)
    vis = torch.ones(8, 8, dtype=torch.bool).tril()
    v[0, 0, 5, 1] = math.nan
    F, B = bounds(q, k, v, do, scale=0.25, dtype="fp16", vis=vis)
    expected = torch.zeros(1, 2, 8, 4, dtype=torch.bool)
    expected[0, 0, 5:, 1] = True
    assert torch.equal(expected, F.o.exempt)
    assert not F.lse.exempt.any()
    assert torch.equal(expected.any(-1), B.dq.exempt.any(-1))
    assert B.dk.exempt[0, 0].all()
    assert not B.dk.exempt[0, 1].any()


def test_chunks_agree_with_the_whole() -> None:
    q, k, v, do = draw("normal", torch.bfloat16, (2, 4, 2, 23, 31, 16, 8), 4)

    def visible(rows: slice, keys: slice) -> Tensor:
        return torch.arange(keys.start, keys.stop) <= torch.arange(rows.start, rows.stop)[:, None] + 2

    whole = outputs(*bounds(q, k, v, do, scale=0.25, dtype="bf16", vis=visible))
    cut = outputs(*bounds(q, k, v, do, scale=0.25, dtype="bf16", vis=visible, chunk_elements=1500))
    tensor = outputs(*bounds(q, k, v, do, scale=0.25, dtype="bf16", vis=visible(slice(0, 23), slice(0, 31))))
    for name, other in itertools.product(whole, (cut, tensor)):
        torch.testing.assert_close(other[name].bound, whole[name].bound, rtol=1e-12, atol=0)
        torch.testing.assert_close(other[name].self_error, whole[name].self_error, rtol=1e-9, atol=0)


def test_overflow_of_an_output_is_required_allowed_or_forbidden() -> None:
    q, k, v, do = draw("zeros", torch.float16, (1, 1, 1, 4, 4, 8, 3), 0)
    do = torch.ones_like(do)
    v[...] = torch.tensor([65504.0, 60000.0, 1.0])
    F, B = bounds(q, k, v, do[..., :3], scale=1.0, dtype="fp16", vis=torch.ones(4, 4, dtype=torch.bool))
    assert F.o.may_overflow[0, 0, 0].tolist() == [True, False, False]
    assert not F.o.must_overflow.any()
    # dV = sum_i P dO: four rows of 60000 give 60000, within reach of nothing; without the softmax's 1/4 they would be infinite.
    big = torch.full_like(do, 6e4)
    _, B = bounds(q, k[:, :, :1], v[:, :, :1] * 0, big, scale=1.0, dtype="fp16")
    assert B.dv.must_overflow.all()
    assert B.dv.may_overflow.all()
    assert not B.dv.exempt.any()


def test_ds_that_overflows_its_cast_exempts_its_row_and_key_only() -> None:
    q, k, v, do = draw("normal", torch.float16, (1, 1, 1, 6, 6, 16, 4), 0)
    v[0, 0, 2], do[0, 0, 3] = 3e4, 300.0
    _, B = bounds(q, k, v, do, scale=0.25, dtype="fp16")
    assert B.dq.exempt[0, 0].all(-1).tolist()[3]
    assert B.dk.exempt[0, 0].all(-1).tolist()[2]
    assert not B.dv.exempt.any()
    assert not bounds(q, k, v, do, scale=0.25, dtype="bf16")[1].dq.exempt.any()


@pytest.mark.parametrize("logit", [1e5, 1e7, 1e9, 1e11])
def test_huge_logits_keep_finite_bounds_of_the_right_order(logit: float) -> None:
    q, k, v, do = draw("normal", torch.float32, (1, 1, 1, 16, 16, 16, 8), 1)
    F, _ = bounds(q, k, v, do, scale=logit, dtype="fp32")
    assert not F.lse.exempt.any()
    assert float(F.lse.bound.max()) < 1e-4 * logit * 16
    assert bool((F.o.bound <= 4 * (1 + 2.0**-20) * v.abs().max() + 1e-3).all())
    assert not F.lse.needs_exact.any()


def test_float64_certifies_itself() -> None:
    for regime, dtype in itertools.product(
        ("normal", "logits1e5", "exact_ties", "v_cancels", "large"), DTYPES.values()
    ):
        results = outputs(*bounds(*draw(regime, dtype, (1, 1, 1, 16, 33, 32, 8), 2), scale=32**-0.5, dtype=dtype))
        for name, x in results.items():
            kept = ~x.exempt
            assert float((x.self_error[kept] / x.bound[kept]).max()) < 1e-7, (regime, name)


@pytest.mark.parametrize(
    "worse",
    [
        Form(exp="poly"), Form(prescale_fwd="k", prescale_bwd="k"), Form(row_sum="rounded"), Form(n_splits=4), Form(kappa=9.0), Form(gap_c=5.0),
        Form(ds_from="p_rounded"), Form(normalise="every_block"), Form(dp_init="minus_delta"), Form(grad_accum="fp16", grad_accum_of="all"),
        Form(gqa_partial="input"), Form(max_source="apart"), Form(partial_dtype="fp16"), Form(rescale_threshold=8.0), Form(bwd_lse_base="e"),
    ],
    ids=lambda form: "-".join(form.describe()["declared"]),
)  # fmt: skip
def test_a_coarser_form_never_has_a_smaller_bound(worse: Form) -> None:
    q, k, v, do = draw("normal", torch.float16, (1, 2, 1, 16, 40, 16, 8), 2)
    base, coarse = (outputs(*bounds(q, k, v, do, scale=0.25, dtype="fp16", form=form)) for form in (Form(), worse))
    assert all(bool((coarse[name].bound >= base[name].bound).all()) for name in base)
    assert any(bool((coarse[name].bound > base[name].bound).any()) for name in base)


def test_base_of_the_returned_lse() -> None:
    q, k, v, do = draw("normal", torch.float16, (1, 1, 1, 8, 24, 16, 8), 2)
    natural, two = (
        bounds(q, k, v, do, scale=0.25, dtype="fp16", form=Form(lse_base=base))[0].lse.bound for base in ("e", "2")
    )
    assert bool((natural < two).all())
    assert bool((natural > 0.69 * two).all())
