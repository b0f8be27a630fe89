"""Decoding with softcap, ALiBi, a bias, sinks and query lengths, against `attention` of the same."""

import math

import pytest
import torch

from flashverify_kernels import attention, decode
from tests.kernels.decode_reference import SMALL, close, ints, paged, run

SQ, SK, HEADS = 5, 70, 6


def device():
    return torch.zeros(()).device


def ramp(*shape, scale=1.0):
    return (torch.arange(math.prod(shape), device=device()) % 13 - 6).float().mul(scale).view(shape)


TERMS = {
    "softcap": lambda: {"softcap": 2.0},
    "alibi": lambda: {"alibi_slopes": ramp(HEADS, scale=0.1), "causal": "bottom-right"},
    "bias of all": lambda: {"bias": ramp(2, HEADS, SQ, SK)},
    "bias of the heads": lambda: {"bias": ramp(1, HEADS, SQ, SK)},
    "sink": lambda: {"sink": ramp(HEADS)},
    "all": lambda: {
        "softcap": 3.0,
        "alibi_slopes": ramp(HEADS, scale=0.1),
        "bias": ramp(2, 1, SQ, SK),
        "sink": ramp(HEADS),
        "causal": "bottom-right",
        "query_lengths": ints(4, 2).to(device()),
    },
}


@pytest.mark.parametrize("n_splits", [1, 3])
@pytest.mark.parametrize("name", TERMS)
def test_a_term_does_to_decoding_what_it_does_to_attention(make_case, name, n_splits):
    case, options = make_case(batch=2, heads=HEADS, kv_heads=2, sq=SQ, sk=SK), TERMS[name]()
    options["key_lengths"] = ints(66, 33).to(device())

    found = run(case.q, case.k, case.v, n_splits=n_splits, config=SMALL, **options)

    close(found, attention(case.q, case.k, case.v, return_lse=True, **options))


@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
def test_rows_past_their_length_are_empty_and_the_diagonal_ends_with_the_last_one(make_case, causal):
    case, lengths = make_case(batch=3, heads=4, kv_heads=2, sq=SQ, sk=SK), ints(5, 2, 0).to(device())

    o, lse = run(case.q, case.k, case.v, causal=causal, query_lengths=lengths, n_splits=2, config=SMALL)

    expected = attention(case.q, case.k, case.v, causal=causal, query_lengths=lengths, return_lse=True)
    close((o, lse), expected)
    for b, n in enumerate(lengths.tolist()):
        assert not o[b, :, n:].any()
        assert bool(lse[b, :, n:].isneginf().all())


def test_a_sink_reaches_no_row_without_keys(make_case):
    case = make_case(batch=2, heads=2, kv_heads=1, sq=3, sk=20)

    o, lse = run(case.q, case.k, case.v, sink=ramp(2) + 9, key_lengths=ints(20, 0).to(device()), n_splits=4)

    assert bool(lse[1].isneginf().all())
    assert not o[1].any()
    assert bool(lse[0].isfinite().all())


def test_terms_go_with_pages(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=3, sk=40)
    lengths = ints(40, 17).to(device())
    k, v, table = paged(case.k, case.v, 16, lengths)
    options = {"softcap": 2.0, "alibi_slopes": ramp(4, scale=0.1), "sink": ramp(4), "causal": "bottom-right"}
    options["key_lengths"] = lengths

    found = run(case.q, k, v, block_table=table, **options)

    close(found, attention(case.q, case.k, case.v, return_lse=True, **options))


def test_a_bias_goes_with_pages_and_is_read_at_the_keys_that_there_are(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=3, sk=40)
    lengths = ints(40, 17).to(device())
    k, v, table = paged(case.k, case.v, 16, lengths)
    bias = torch.full((2, 1, 3, 48), float("nan"), device=device())
    for b, n in enumerate((40, 17)):
        bias[b, 0, :, :n] = ramp(n)

    found = run(case.q, k, v, block_table=table, bias=bias, key_lengths=lengths)

    close(found, attention(case.q, case.k, case.v, return_lse=True, bias=bias[..., :40], key_lengths=lengths))


def test_terms_that_do_not_go_are_named():
    q, table = torch.zeros(1, 2, 1, 8), torch.zeros(1, 1, dtype=torch.int32)
    pages = torch.zeros(1, 16, 2, 8)
    with pytest.raises(ValueError, match=r"bias: expected shape \(1, 2, 1, 16\), the first two axes possibly 1, got"):
        decode(q, pages, pages, block_table=table, bias=torch.zeros(1, 1, 1, 15))
    with pytest.raises(ValueError, match=r"sink: expected shape \(2,\), one per query head, got \(3,\)"):
        decode(q, q, q, sink=torch.zeros(3))
    with pytest.raises(ValueError, match="bias: decode has no backward"):
        decode(q, q, q, bias=torch.zeros(1, 1, 1, 1, requires_grad=True))
