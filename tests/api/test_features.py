"""Every argument of `assert_attention_close` and `oracle`: outputs of the definition pass, the same with one defect fail."""

import math

import pytest
import torch

from flashverify import assert_attention_close, oracle
from flashverify.truth import kept_pairs

ROWS, KEYS = torch.arange(24).view(-1, 1), torch.arange(32).view(1, -1)


def inputs_of(p):
    return p.q, p.k, p.v


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


def lengths(values, size):
    return torch.arange(size) < torch.tensor(values).view(-1, 1)


TREE = (-1, 0, 0, 1, -1, 4, 5, *range(6, 23))
ANCESTORS = torch.eye(24, dtype=torch.bool)
for node, parent in enumerate(TREE):
    if parent >= 0:
        ANCESTORS[node] |= ANCESTORS[parent]
SIBLING = ANCESTORS.clone()
SIBLING[2, 1] = True
PREFIX = torch.ones(24, 8, dtype=torch.bool)
DENSE = torch.rand(1, 4, 24, 32, generator=torch.Generator().manual_seed(3)) < 0.6
CU_Q, CU_K = (0, 10, 10, 22), (0, 8, 12, 30)


def blocks(cu_q, cu_k, rows=24, keys=32):
    row, key = torch.arange(rows), torch.arange(keys)
    number = [torch.bucketize(x, torch.tensor(cu[1:]), right=True) for x, cu in ((row, cu_q), (key, cu_k))]
    inside = (row < cu_q[-1]).view(-1, 1) & (key < cu_k[-1]).view(1, -1)
    return (number[0].view(-1, 1) == number[1].view(1, -1)) & inside


CHOSEN = torch.tensor([[[[0, 3, -1], [2, 2, 5], [7, -1, 1]], [[1, -1, 0], [0, 4, 4], [6, 3, 0]]]])
"""Lists of each kv head for 8 rows, of blocks of 4 keys, with duplicates and with entries that name none."""


def named(lists):
    see = torch.zeros(1, 4, 24, 32, dtype=torch.bool)
    for head, group, entry in torch.cartesian_prod(torch.arange(4), torch.arange(3), torch.arange(3)).tolist():
        block = int(lists[0, head // 2, group, entry])
        if block >= 0:
            see[0, head, 8 * group : 8 * group + 8, 4 * block : 4 * block + 4] = True
    return see


MASKS = {
    "top-left": ({"causal": "top-left"}, KEYS <= ROWS, KEYS < ROWS),
    "bottom-right": ({"causal": "bottom-right"}, KEYS <= ROWS + 8, KEYS <= ROWS),
    "window": ({"window": (5, 3)}, (KEYS >= ROWS - 5) & (KEYS <= ROWS + 3), (KEYS >= ROWS - 4) & (KEYS <= ROWS + 3)),
    "open window": ({"window": (None, 3)}, KEYS <= ROWS + 3, KEYS <= ROWS + 4),
    "tree": ({"tree": TREE}, torch.cat([PREFIX, ANCESTORS], 1), torch.cat([PREFIX, SIBLING], 1)),
    "tree and window": (
        {"tree": TREE, "causal": "bottom-right", "window": (5, None)},
        torch.cat([PREFIX, ANCESTORS], 1) & (KEYS >= ROWS + 3),
        torch.cat([PREFIX, ANCESTORS], 1) & (KEYS >= ROWS + 4),
    ),
    "prefix": (
        {"prefix_lengths": [9, 20], "causal": "top-left"},
        lengths([9, 20], 32)[:, None, None] | (KEYS <= ROWS),
        lengths([10, 20], 32)[:, None, None] | (KEYS <= ROWS),
    ),
    "key lengths": (
        {"key_lengths": [9, 32], "causal": "top-left"},
        lengths([9, 32], 32)[:, None, None] & (KEYS <= ROWS),
        lengths([10, 32], 32)[:, None, None] & (KEYS <= ROWS),
    ),
    "query lengths": (
        {"query_lengths": torch.tensor([24, 17])},
        lengths([24, 17], 24)[:, None, :, None] & torch.ones(1, 1, 24, 32, dtype=torch.bool),
        lengths([24, 18], 24)[:, None, :, None] & torch.ones(1, 1, 24, 32, dtype=torch.bool),
    ),
    "chosen keys": (
        {"selection": CHOSEN, "selection_rows": 8, "selection_keys": 4, "causal": "bottom-right"},
        named(CHOSEN) & (KEYS <= ROWS + 8),
        named(CHOSEN.roll(1, 2)) & (KEYS <= ROWS + 8),
    ),
    "dense": ({"mask": DENSE}, DENSE, DENSE.roll(1, 1)),
    "dense and causal": ({"mask": DENSE, "causal": "bottom-right"}, DENSE & (KEYS <= ROWS + 8), DENSE & (KEYS <= ROWS)),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_passes_and_a_slightly_other_one_fails(name, dtype, draw, attention):
    options, right, wrong = MASKS[name]
    p = draw(dtype)

    assert_attention_close(
        *inputs_of(p), **attention(*inputs_of(p), p.do, p.dlse, visible=right), do=p.do, dlse=p.dlse, **options
    )
    outputs = attention(*inputs_of(p), p.do, p.dlse, visible=wrong)
    for output in ("o", "lse", "dq", "dv"):
        with pytest.raises(AssertionError, match=rf"{output}\["):
            assert_attention_close(*inputs_of(p), **{output: outputs[output]}, do=p.do, dlse=p.dlse, **options)


def test_packed_sequences_pass_and_an_end_that_is_off_by_one_fails(dtype, draw, attention):
    p = draw(dtype, batch=1)
    options = {"cu_q": CU_Q, "cu_k": CU_K, "padding": "undefined"}
    right = attention(*inputs_of(p), p.do, visible=blocks(CU_Q, CU_K))
    wrong = attention(*inputs_of(p), p.do, visible=blocks((0, 10, 10, 22), (0, 9, 12, 30)))
    right["o"][:, :, 22:] = math.nan

    assert_attention_close(*inputs_of(p), **right, do=p.do, **options)
    with pytest.raises(AssertionError, match=r"o\[0, \d, [0-9], "):
        assert_attention_close(*inputs_of(p), o=wrong["o"], **options)


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


def test_padding_must_be_written_unless_it_is_undefined(draw, attention):
    p = draw()
    visible = (lengths([24, 17], 24)[:, None, :, None]) & lengths([32, 9], 32)[:, None, None]
    outputs = attention(*inputs_of(p), p.do, visible=visible)
    given = {"query_lengths": [24, 17], "key_lengths": [32, 9], "do": p.do}

    assert_attention_close(*inputs_of(p), **outputs, **given)
    for name, place in (("o", (1, 0, 20, 3)), ("dk", (1, 0, 12, 3)), ("dq", (1, 0, 17, 0)), ("lse", (1, 0, 17))):
        outputs[name][place] = 0.5
        with pytest.raises(AssertionError, match=rf"{name}\[{', '.join(map(str, place))}\]"):
            assert_attention_close(*inputs_of(p), **outputs, **given)
        assert_attention_close(*inputs_of(p), **outputs, **given, padding="undefined")
        outputs[name][place] = -math.inf if name == "lse" else 0.0


def test_what_a_row_without_keys_holds_can_be_named(draw, attention):
    p = draw()
    outputs = attention(*inputs_of(p), visible=ROWS != KEYS * 0 + 3)
    outputs["lse"][:, :, 3] = math.inf

    with pytest.raises(AssertionError, match="fixed by contract"):
        assert_attention_close(*inputs_of(p), **outputs, mask=ROWS.expand(24, 32) != 3)
    assert_attention_close(*inputs_of(p), **outputs, mask=ROWS.expand(24, 32) != 3, empty_row_lse=math.inf)


def test_padding_of_q_and_do_may_hold_anything(draw, attention):
    p = draw()
    outputs = attention(*inputs_of(p), p.do, visible=MASKS["query lengths"][1])
    p.q[1, :, 17:], p.do[1, :, 17:], p.dlse[1, :, 17:] = math.nan, math.inf, math.nan

    assert_attention_close(*inputs_of(p), **outputs, do=p.do, query_lengths=[24, 17])


def test_the_oracle_gives_every_gradient(draw, attention):
    p = draw()
    bias, sink = p.normal(1, 1, 24, 32), p.normal(4)
    right = attention(*(x.double() for x in inputs_of(p)), p.do, p.dlse, bias=bias, sink=sink)

    exact = oracle(*inputs_of(p), do=p.do, dlse=p.dlse, bias=bias, sink=sink)

    for name in ("o", "dq", "dk", "dv", "dbias"):
        torch.testing.assert_close(getattr(exact, name), right[name], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(exact.dsink.float(), right["dsink"].float())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"selection": torch.full((1, 1, 24, 2), 8), "selection_keys": 4},
            "entries from 8 to 8 is not accepted: -1 for none, or blocks 0 to 7",
        ),
        ({"selection": torch.zeros(1, 1, 24, 2)}, "selection of dtype torch.float32 is not accepted: integers"),
        (
            {"selection": torch.zeros(1, 4, 24, 2).int()},
            r"shape \[1, 4, 24, 2\] is not accepted: \[2 or 1, 2 or 1, 24, entries\]",
        ),
        ({"selection_rows": 4}, "selection_rows=4 is not accepted without selection"),
        ({"selection_keys": 0}, "selection_keys=0 is not accepted: an integer >= 1"),
        ({"window": 5}, r"window=5 is not accepted: None or \(left, right\)"),
        ({"window": (-1, 0)}, r"window=\(-1, 0\)"),
        ({"tree": [0]}, "tree"),
        ({"cu_q": CU_Q}, "cu_k=None"),
        ({"cu_q": CU_Q, "cu_k": CU_K}, "batch=2"),
        ({"key_lengths": [1.5, 2.0]}, "key_lengths"),
        ({"key_lengths": [1, 2, 3]}, "key_lengths=.*one length per sequence"),
        ({"softcap": -1.0}, "softcap=-1.0"),
        ({"scale": math.inf}, "scale=inf"),
        ({"alibi_slopes": torch.ones(3)}, r"alibi_slopes of shape \[3\] is not accepted: \[4\]"),
        ({"bias": torch.zeros(24, 32)}, r"bias of shape \[24, 32\] is not accepted: \[2 or 1, 4 or 1, 24, 32\]"),
        ({"bias": torch.full((1, 1, 24, 32), -math.inf)}, "bias holds a non-finite value.*mask="),
        (
            {"relative_bias": torch.zeros(4, 8)},
            "distance_buckets=None is not accepted: relative_bias and distance_buckets",
        ),
        ({"distance_buckets": [0]}, "relative_bias=None is not accepted: relative_bias and distance_buckets belong"),
        ({"relative_bias": torch.zeros(3, 8)}, r"relative_bias of shape \[3, 8\] is not accepted: \[4, buckets\]"),
        (
            {"relative_bias": torch.zeros(4, 8), "distance_buckets": [0, 1]},
            "distance_buckets of 2 entries is not accepted",
        ),
        (
            {"relative_bias": torch.zeros(4, 8), "distance_buckets": [0, 8, 1]},
            "values from 0 to 8 is not accepted: 0 to 7",
        ),
        ({"relative_bias": torch.full((4, 8), math.nan)}, "relative_bias holds a non-finite value"),
        ({"sink": torch.ones(4, dtype=torch.int64)}, "sink of dtype torch.int64"),
        ({"mask": torch.ones(5, 32, dtype=torch.bool)}, r"mask of shape \[5, 32\].*broadcast to \[2, 4, 24, 32\]"),
        ({"dropout_p": 1.0}, "dropout_p=1.0"),
        ({"dropout_p": 0.1}, "dropout_p=0.1 needs dropout_keep or dropout_seed"),
        ({"dropout_p": 0.1, "dropout_seed": -1}, "dropout_seed=-1"),
        ({"dropout_p": 0.1, "dropout_seed": 1, "dropout_offset": 2**32}, "dropout_offset=4294967296"),
        ({"dropout_keep": DENSE}, "dropout_keep is not accepted without dropout_p"),
        ({"padding": "zero"}, "padding='zero'"),
        ({"dbias": torch.zeros(1, 1, 24, 32), "dlse": torch.zeros(2, 4, 24)}, "bias=None"),
        ({"dsink": torch.zeros(4)}, "do=None is not accepted: the gradients dsink"),
        ({"do": torch.zeros(2, 4, 24, 8)}, r"do of shape \[2, 4, 24, 8\] is not accepted: \[2, 4, 24, 16\]"),
        ({"dlse": torch.full((2, 4, 24), math.nan)}, "dlse holds a non-finite value"),
    ],
)
def test_a_bad_option_is_named(options, message, draw):
    p = draw()

    with pytest.raises(ValueError, match=message):
        assert_attention_close(*inputs_of(p), o=p.do, **options)


def test_a_backward_that_keeps_o_in_higher_precision_is_right_unless_it_is_said_to_read_the_outputs(draw):
    p = draw(torch.bfloat16, kv=4)
    sink = p.normal(4).requires_grad_()
    logits = p.q.double() @ p.k.double().mT / 4
    every = torch.cat([logits, sink.double().view(1, 4, 1, 1).expand(2, 4, 24, 1)], -1)
    o, lse = torch.softmax(every, -1)[..., :-1] @ p.v.double(), every.logsumexp(-1)
    outputs = {"o": o.detach().bfloat16(), "lse": lse.detach().float()}
    outputs["dsink"] = torch.autograd.grad(o, sink, p.do.double())[0]

    with pytest.raises(AssertionError, match="does not read this O and LSE is judged with conditional=False"):
        assert_attention_close(*inputs_of(p), **outputs, do=p.do, sink=sink, conditional=True)
    for conditional in (None, False):
        assert_attention_close(*inputs_of(p), **outputs, do=p.do, sink=sink, conditional=conditional)
    outputs["dsink"] = outputs["dsink"] * (1 + 2.0**-3)
    with pytest.raises(AssertionError, match="dsink"):
        assert_attention_close(*inputs_of(p), **outputs, do=p.do, sink=sink)


def test_an_unknown_option_is_named_with_those_that_exist(draw):
    p = draw()

    for function in (oracle, assert_attention_close):
        with pytest.raises(TypeError, match=r"'windows'; accepted beside its own: layout, scale, causal, window"):
            function(*inputs_of(p), windows=(1, 2))


def test_the_base_of_the_form_counts_and_another_one_is_a_contradiction(draw, attention):
    from flashverify import Form

    p = draw()
    base_2 = attention(*inputs_of(p))["lse"] / math.log(2)

    assert_attention_close(*inputs_of(p), lse=base_2, form=Form(lse_base="2"))
    assert_attention_close(*inputs_of(p), lse=base_2, lse_base="2", form=Form(lse_base="2"))
    with pytest.raises(AssertionError, match="lse"):
        assert_attention_close(*inputs_of(p), lse=base_2, form=Form())
    with pytest.raises(ValueError, match=r"lse_base='e' contradicts form.lse_base='2'"):
        assert_attention_close(*inputs_of(p), lse=base_2, lse_base="e", form=Form(lse_base="2"))
