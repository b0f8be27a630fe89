"""With softcap, biases, sink and dropout: no NaN, no negative bound, no surprise at the edges."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashverify.numerics import BoundInputs, Form
from tests.numerics.bounding import bounds, outputs
from tests.numerics.family_problems import everything
from tests.numerics.regimes import draw

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
magnitudes = st.sampled_from([0.0, 1e-40, 1e-8, 1.0, 300.0, 6e4, 1e20, 3.3e38])
forms = st.builds(
    Form,
    softcap=st.sampled_from(["exp", "tanh", "approx"]),
    softcap_slope=st.sampled_from(["square", "product"]),
    dropout_scale=st.sampled_from(["fp32", "input"]),
    dbias_partial=st.sampled_from(["fp32", "input"]),
    partial_lse_base=st.sampled_from(["2", "e"]),
    n_splits=st.sampled_from([1, 3]),
    partial_dtype=st.sampled_from(["fp32", "bf16"]),
    row_sum=st.sampled_from(["unrounded", "rounded"]),
    max_source=st.sampled_from(["exponent", "apart"]),
    scale_ds=st.sampled_from(["after", "operand", "before"]),
)


@pytest.mark.slow
@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(
    dtype=st.sampled_from(list(DTYPES)),
    sizes=st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 2), st.integers(0, 5), st.integers(0, 20), st.integers(0, 8)),
    q_size=magnitudes,
    v_size=magnitudes,
    bias_size=magnitudes,
    sink_size=magnitudes,
    softcap=st.sampled_from([None, 1e-30, 0.1, 30.0, 1e30]),
    dropout=st.sampled_from([None, 0.0, 0.5, 0.999]),
    scale=st.sampled_from([0.0, 1e-40, 0.125, -1.0, 1e20]),
    form=forms,
    mask=st.integers(0, 2),
    poison=st.sampled_from([None, math.nan, math.inf, -math.inf]),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_never_nan_never_negative(
    dtype, sizes, q_size, v_size, bias_size, sink_size, softcap, dropout, scale, form, mask, poison, seed
) -> None:  # type: ignore[no-untyped-def]
    B, Hkv, group, Sq, Sk, D = sizes
    gen, Hq = torch.Generator().manual_seed(seed), Hkv * group
    drawn = draw("normal", torch.float64, (B, Hq, Hkv, Sq, Sk, D, D), seed)
    bias = torch.randn(1, Hq, Sq, Sk, generator=gen, dtype=torch.float64)
    sink = torch.randn(Hq, generator=gen, dtype=torch.float64)
    biggest = torch.finfo(DTYPES[dtype]).max
    sized = zip((*drawn, bias, sink), (q_size, q_size, v_size, v_size, bias_size, sink_size), strict=True)
    tensors = [(x * size).clamp(-biggest, biggest).to(DTYPES[dtype]) for x, size in sized]
    if poison is not None:
        for x in tensors:
            if x.numel() and (seed + x.numel()) % 2:
                x.view(-1)[seed % x.numel()] = poison
    q, k, v, do, bias, sink = tensors
    keep = None if dropout is None else torch.rand(B, Hq, Sq, Sk, generator=gen) >= dropout
    found = bounds(
        q, k, v, do, dtype=dtype, form=form, scale=scale, softcap=softcap, biases=(bias,), sink=sink.float(), keep=keep,
        dropout=dropout or 0.0, bias_shape=(1, Hq, Sq, Sk), vis=None if mask == 0 else torch.ones(Sq, Sk, dtype=torch.bool).tril(mask - 3),
    )  # fmt: skip
    for name, x in outputs(found).items():
        assert bool((x.bound >= 0).all()), name
        assert bool((x.self_error >= 0).all()), name
        assert not bool(x.self_error.isinf().any()), name


def test_chunks_and_callables_agree_with_the_whole() -> None:
    tensors, asked = everything(23, 31)
    (bias,), keep, shape = asked["biases"], asked["keep"], (2, 1, 23, 31)
    late = {
        **asked,
        "biases": (lambda rows, keys: bias[:, :, rows, keys],),
        "keep": lambda rows, keys: keep[:, :, rows, keys],
    }
    whole = outputs(bounds(*tensors, bias_shape=shape, **asked))
    assert set(whole) >= {"dbias", "dsink"}
    for other in (
        bounds(*tensors, bias_shape=shape, chunk_elements=2500, **asked),
        bounds(*tensors, bias_shape=shape, **late),
    ):
        for name, x in outputs(other).items():
            torch.testing.assert_close(x.bound, whole[name].bound, rtol=1e-12, atol=0)
            torch.testing.assert_close(x.self_error, whole[name].self_error, rtol=1e-9, atol=0)


@pytest.mark.parametrize("shape", [(2, 4, 23, 31), (1, 1, 23, 31), (2, 1, 1, 31), (1, 4, 23, 1), (23, 31)])
def test_a_bias_of_any_shape_has_a_gradient(shape: tuple[int, ...]) -> None:
    tensors, asked = everything(23, 31)
    asked["biases"] = (torch.zeros(shape),)
    for elements in (1 << 21, 2500):
        bound = outputs(bounds(*tensors, bias_shape=shape, chunk_elements=elements, **asked))["dbias"]
        assert bound.bound.shape == shape
        assert not bound.exempt.any()


@pytest.mark.parametrize("poison", [math.nan, math.inf, 6e4])
def test_what_nothing_sees_changes_no_bound(poison: float) -> None:
    (q, k, v, do), asked = everything(9, 12)
    vis = torch.ones(9, 12, dtype=torch.bool).tril()
    vis[:, 10:], vis[7:] = False, False
    clean = outputs(bounds(q, k, v, do, vis=vis, bias_shape=(2, 1, 9, 12), **asked))
    for x, rows in ((q, slice(7, None)), (k, slice(10, None)), (v, slice(10, None)), (do, slice(7, None))):
        x[:, :, rows] = poison
    asked["biases"] = (asked["biases"][0].masked_fill(~vis, poison),)
    dirty = outputs(bounds(q, k, v, do, vis=vis, bias_shape=(2, 1, 9, 12), **asked))
    for name, x in clean.items():
        assert torch.equal(x.bound, dirty[name].bound), name
        assert not dirty[name].exempt.any(), name
    assert float(clean["dbias"].bound[:, :, ~vis].max()) == 0.0
    assert float(clean["o"].bound[:, :, 7:].max()) == 0.0


@pytest.mark.parametrize(
    "worse",
    [
        Form(softcap="approx"), Form(kappa_bias=9.0), Form(dropout_scale="input"), Form(dbias_partial="input"), Form(exp="poly"),
        Form(n_splits=3), Form(n_splits=3, partial_lse_base="e"), Form(n_splits=3, partial_dtype="fp16"),
    ],
    ids=lambda form: "-".join(form.describe()["declared"]),
)  # fmt: skip
def test_a_coarser_form_never_has_a_smaller_bound(worse: Form) -> None:
    tensors, asked = everything(16, 40)
    n = worse.n_splits if len(worse.describe()["declared"]) > 1 else 1
    base, coarse = (
        outputs(bounds(*tensors, form=form, bias_shape=(2, 1, 16, 40), **asked)) for form in (Form(n_splits=n), worse)
    )
    assert all(bool((coarse[name].bound >= base[name].bound).all()) for name in base)
    assert any(bool((coarse[name].bound > base[name].bound).any()) for name in base)


def test_float64_certifies_itself() -> None:
    for softcap, dropout, size in itertools.product((None, 0.05, 30.0), (0.0, 0.9), (1.0, 1e4)):
        (q, k, v, do), asked = everything(16, 33)
        asked |= {"softcap": softcap, "dropout": dropout, "biases": (asked["biases"][0] * size,)}
        for form in (Form(), Form(softcap_slope="product")):
            for name, x in outputs(bounds(q, k, v, do, form=form, bias_shape=(2, 1, 16, 33), **asked)).items():
                kept = ~x.exempt
                assert float((x.self_error[kept] / x.bound[kept]).nan_to_num().max()) < 1e-7, (
                    name,
                    softcap,
                    dropout,
                    size,
                )


@pytest.mark.parametrize(
    ("name", "value"), [("softcap", -1.0), ("softcap", math.inf), ("dropout", 1.0), ("dropout", 0.5)]
)
def test_a_bad_argument_is_named(name: str, value: float) -> None:
    (q, k, v, _), _ = everything(4, 4)
    with pytest.raises(ValueError, match=name):
        BoundInputs.of(q, k, v, scale=1.0, dtype="fp16", **{name: value})
