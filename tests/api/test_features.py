"""Every argument of `assert_attention_close` and `oracle`: outputs of the definition pass, the same with one defect fail."""

import pytest
import torch

from flashverify import assert_attention_close, oracle
from flashverify.truth import kept_pairs
from tests.api.feature_problems import KEYS, ROWS, inputs_of


def test_everything_at_once_passes(dtype, draw, attention):
    p = draw(dtype)
    bias, sink = p.normal(1, 4, 24, 32).to(dtype), p.normal(4)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    keep = p.normal(2, 4, 24, 32) > -0.5
    right = attention(
        *inputs_of(p),
        p.do,
        p.dlse,
        visible=(KEYS <= ROWS + 8) & (KEYS >= ROWS + 8 - 9),
        softcap=3.0,
        bias=bias - 0,
        sink=sink,
        keep=keep,
        p=0.25,
    )
    plain = {"causal": "bottom-right", "window": (9, 0), "softcap": 3.0, "bias": bias, "sink": sink}
    dropout = {"dropout_p": 0.25, "dropout_keep": keep}

    stats = assert_attention_close(*inputs_of(p), **right, do=p.do, dlse=p.dlse, **plain, **dropout)

    gradients = ("dq", "dk", "dv", "dbias", "dsink")
    assert {(s.output, s.mode) for s in stats} == {
        ("o", "end-to-end"),
        ("lse", "end-to-end"),
        *((name, mode) for name in gradients for mode in ("end-to-end", "conditional")),
    }
    with pytest.raises(AssertionError, match=r"o\["):
        assert_attention_close(*inputs_of(p), **right, do=p.do, dlse=p.dlse, **plain, **dropout, alibi_slopes=slopes)


DEFECTS = {
    "softcap is left out": ({"softcap": 2.0}, {}, {"softcap": 2.0}, "o"),
    "softcap of another size": ({"softcap": 2.0}, {"softcap": 2.1}, {"softcap": 2.0}, "dq"),
    "scale": ({"scale": 0.3}, {"scale": 0.31}, {"scale": 0.3}, "lse"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_number_passes_and_another_one_fails(name, dtype, draw, attention):
    options, planted, right, output = DEFECTS[name]
    p = draw(dtype)

    assert_attention_close(*inputs_of(p), **attention(*inputs_of(p), p.do, **right), do=p.do, **options)
    wrong = attention(*inputs_of(p), p.do, **planted)[output]
    with pytest.raises(AssertionError, match=rf"{output}\["):
        assert_attention_close(*inputs_of(p), **{output: wrong}, do=p.do, **options)


def test_alibi_passes_and_a_slope_of_the_next_head_fails(dtype, draw, attention):
    p = draw(dtype)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    causal, distance = KEYS <= ROWS + 8, (KEYS - ROWS - 8).abs()

    def outputs(used):
        bias = -used.view(1, 4, 1, 1) * distance
        found = attention(*inputs_of(p), p.do, visible=causal, bias=bias)
        return {name: x for name, x in found.items() if name != "dbias"}

    options = {"alibi_slopes": slopes, "causal": "bottom-right", "do": p.do}
    assert_attention_close(*inputs_of(p), **outputs(slopes), **options)
    with pytest.raises(AssertionError, match="lse"):
        assert_attention_close(*inputs_of(p), lse=outputs(slopes.roll(1))["lse"], **options)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", [(2, 4, 24, 24), (1, 4, 24, 24), (2, 1, 24, 24), (1, 1, 24, 24)])
def test_a_bias_and_its_gradient_pass_and_their_transposes_fail(shape, dtype, draw, attention):
    p = draw(dtype, keys=24)
    bias = p.normal(*shape).to(dtype)
    right = attention(*inputs_of(p), p.do, bias=bias)

    assert_attention_close(*inputs_of(p), **right, do=p.do, bias=bias)
    with pytest.raises(AssertionError, match=r"dbias\["):
        assert_attention_close(*inputs_of(p), **(right | {"dbias": right["dbias"].mT}), do=p.do, bias=bias)
    with pytest.raises(AssertionError, match=r"o\["):
        assert_attention_close(*inputs_of(p), o=right["o"], do=p.do, bias=bias.mT)


def test_a_sink_and_its_gradient_pass_and_a_sink_that_lse_leaves_out_fails(dtype, draw, attention):
    p = draw(dtype)
    sink = p.normal(4)
    right = attention(*inputs_of(p), p.do, p.dlse, sink=sink)
    options = {"do": p.do, "dlse": p.dlse, "sink": sink}

    assert_attention_close(*inputs_of(p), **right, **options)
    with pytest.raises(AssertionError, match="lse"):
        assert_attention_close(*inputs_of(p), **(right | {"lse": attention(*inputs_of(p))["lse"]}), **options)
    with pytest.raises(AssertionError, match=r"dsink\[\d\]"):
        assert_attention_close(*inputs_of(p), **(right | {"dsink": right["dsink"].roll(1)}), **options)


def test_dlse_alone_gives_gradients_and_one_that_is_left_out_fails(dtype, draw, attention):
    p = draw(dtype)
    right = attention(*inputs_of(p), None, p.dlse)

    assert_attention_close(*inputs_of(p), dq=right["dq"], dk=right["dk"], dv=right["dv"], dlse=p.dlse)
    torch.testing.assert_close(oracle(*inputs_of(p), dlse=p.dlse).dq.to(dtype), right["dq"])
    both = attention(*inputs_of(p), p.do, p.dlse)
    without = attention(*inputs_of(p), p.do)
    assert_attention_close(*inputs_of(p), dq=both["dq"], do=p.do, dlse=p.dlse)
    with pytest.raises(AssertionError, match=r"dq\["):
        assert_attention_close(*inputs_of(p), dq=without["dq"], do=p.do, dlse=p.dlse)


def test_delta_is_judged_with_and_without_dlse_in_it(draw, attention):
    from flashverify import Form

    p = draw()
    found = attention(*inputs_of(p), p.do, p.dlse)
    delta = (found["o"].double() * p.do.double()).sum(-1).float()
    folded = Form(stored_delta="minus_dlse")

    assert_attention_close(*inputs_of(p), delta=delta, do=p.do, dlse=p.dlse)
    assert_attention_close(*inputs_of(p), delta=delta - p.dlse, do=p.do, dlse=p.dlse, form=folded)
    with pytest.raises(AssertionError, match=r"delta\["):
        assert_attention_close(*inputs_of(p), delta=delta, do=p.do, dlse=p.dlse, form=folded)


def philox(p, seed, offset, shape=(2, 4, 24, 32)):
    batch, heads, rows, keys = shape
    place = {
        "sequence": torch.arange(batch).view(-1, 1).expand(batch, rows),
        "row": torch.arange(rows).expand(batch, rows),
        "key": torch.arange(keys).expand(batch, keys),
    }
    return kept_pairs(seed=seed, offset=offset, p=p, heads=heads, **place)(slice(0, rows), slice(0, keys))


def test_dropout_by_seed_passes_and_a_shifted_offset_or_mask_fails(dtype, draw, attention):
    p = draw(dtype)
    keep = philox(0.3, 2**63 + 5, 7)
    right = attention(*inputs_of(p), p.do, keep=keep, p=0.3)
    by_seed = {"dropout_p": 0.3, "dropout_seed": 2**63 + 5, "dropout_offset": 7}

    assert_attention_close(*inputs_of(p), **right, do=p.do, **by_seed)
    for options in (by_seed | {"dropout_offset": 8}, {"dropout_p": 0.3, "dropout_keep": keep.roll(1, -1)}):
        with pytest.raises(AssertionError, match=r"o\["):
            assert_attention_close(*inputs_of(p), **right, do=p.do, **options)


def test_the_lse_of_dropout_is_that_of_all_weights(draw, attention):
    p = draw()
    keep = philox(0.3, 1, 0)

    exact = oracle(*inputs_of(p), dropout_p=0.3, dropout_keep=keep)

    torch.testing.assert_close(exact.lse, oracle(*inputs_of(p)).lse)
    assert not torch.allclose(exact.o, oracle(*inputs_of(p)).o)


def test_the_oracle_gives_every_gradient(draw, attention):
    p = draw()
    bias, sink = p.normal(1, 1, 24, 32), p.normal(4)
    right = attention(*(x.double() for x in inputs_of(p)), p.do, p.dlse, bias=bias, sink=sink)

    exact = oracle(*inputs_of(p), do=p.do, dlse=p.dlse, bias=bias, sink=sink)

    for name in ("o", "dq", "dk", "dv", "dbias"):
        torch.testing.assert_close(getattr(exact, name), right[name], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(exact.dsink.float(), right["dsink"].float())
