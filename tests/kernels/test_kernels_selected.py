"""Attention over keys chosen by index against the same attention with a dense mask, in float64, forward and backward."""

import math

import pytest
import torch

from flashverify_kernels import Selection, selected_attention
from flashverify_kernels.selection import namers_of, prepared

SQ, SK = 7, 20


def named(indices, rows, keys, heads):
    """Bool `[B or 1, Hq or 1, SQ, SK]`, list by list."""
    seen = torch.zeros(*indices.shape[:2], SQ, SK, dtype=torch.bool)
    for b, h, n in torch.cartesian_prod(*(torch.arange(size) for size in indices.shape[:3])).tolist():
        for c in indices[b, h, n].tolist():
            if c >= 0:
                seen[b, h, n * rows : (n + 1) * rows, c * keys : (c + 1) * keys] = True
    return seen.repeat_interleave(heads // seen.shape[1], 1)


def exact(q, k, v, see, do, dlse):
    q, k, v = (x.double().detach().requires_grad_() for x in (q, k, v))
    wide_k, wide_v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    some = see.any(-1, keepdim=True)
    s = (q @ wide_k.mT / math.sqrt(q.shape[3])).masked_fill(~see, -math.inf).masked_fill(~some, 0.0)
    o = torch.where(some, s.softmax(-1) @ wide_v, 0.0)
    lse = s.logsumexp(-1)
    return (
        o,
        lse.masked_fill(~some.squeeze(-1), -math.inf),
        torch.autograd.grad((o, lse.where(some.squeeze(-1), 0.0)), (q, k, v), (do.double(), dlse.double())),
    )


@pytest.mark.parametrize(
    ("rows", "keys", "each", "causal", "lengths"),
    [(1, 4, True, None, None), (3, 1, False, "bottom-right", (20, 9)), (1, 7, True, "top-left", (13, 0))],
)
def test_it_is_attention_under_the_mask_of_the_lists(rows, keys, each, causal, lengths):
    make = torch.Generator().manual_seed(rows)
    q, do = torch.randn(2, 2, 4, SQ, 16, generator=make)
    k, v = torch.randn(2, 2, 2, SK, 16, generator=make)
    dlse = torch.randn(2, 4, SQ, generator=make)
    shape = (2 if each else 1, 2 if each else 1, -(-SQ // rows), 6)
    indices = torch.randint(-1, -(-SK // keys), shape, generator=make, dtype=torch.int32)
    n = torch.tensor(lengths or (SK, SK)).view(-1, 1, 1, 1)
    see = named(indices, rows, keys, 4) & (torch.arange(SK) < n)
    if causal is not None:
        see = see & (torch.arange(SK) <= torch.arange(SQ).view(-1, 1) + (n - SQ if causal == "bottom-right" else 0))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    given = {"causal": causal, "key_lengths": None if lengths is None else n.flatten().int()}

    o, lse = selected_attention(*leaves, Selection(indices=indices, rows=rows, keys=keys), return_lse=True, **given)

    agree(o, lse, torch.autograd.grad((o, lse), leaves, (do, dlse)), exact(q, k, v, see.expand(2, 4, SQ, SK), do, dlse))


def agree(o, lse, gradients, wanted):
    for name, x, y in zip(("o", "lse", "dq", "dk", "dv"), (o, lse, *gradients), (*wanted[:2], *wanted[2]), strict=True):
        assert torch.equal(torch.isinf(x), torch.isinf(y)), name
        finite = torch.isfinite(y)
        assert ((x.double() - y)[finite].abs() <= 1e-5 * (1 + y[finite].abs())).all(), name


@pytest.mark.parametrize("keys", [32, 96])
def test_tiles_that_divide_blocks_and_lists_have_one_number_each(keys):
    make = torch.Generator().manual_seed(keys)
    q, do = torch.randn(2, 1, 2, 40, 16, generator=make)
    k, v = torch.randn(2, 1, 1, 170, 16, generator=make)
    dlse = torch.randn(1, 2, 40, generator=make)
    indices = torch.randint(-1, -(-170 // keys), (1, 1, 3, 4), generator=make, dtype=torch.int32)
    see = torch.zeros(40, 170, dtype=torch.bool)
    for n, blocks in enumerate(indices[0, 0].tolist()):
        for c in blocks:
            see[n * 16 : (n + 1) * 16, c * keys : (c + 1) * keys] |= c >= 0
    see &= torch.arange(170) < 150
    leaves = [x.requires_grad_() for x in (q, k, v)]
    lengths = torch.tensor([150], dtype=torch.int32)

    o, lse = selected_attention(
        *leaves, Selection(indices=indices, rows=16, keys=keys), key_lengths=lengths, return_lse=True
    )

    agree(
        o, lse, torch.autograd.grad((o, lse), leaves, (do, dlse)), exact(q, k, v, see.expand(1, 2, 40, 170), do, dlse)
    )


def test_a_block_that_stands_twice_counts_once_and_order_is_nothing():
    make = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, 1, size, 8, generator=make) for size in (SQ, SK, SK))
    plain = torch.tensor([4, 7, 2, -1, -1], dtype=torch.int32).expand(1, 1, SQ, 5)
    other = torch.tensor([-1, 2, 7, 2, 4], dtype=torch.int32).expand(1, 1, SQ, 5)

    one, two = (selected_attention(q, k, v, Selection(indices=x)) for x in (plain, other))

    assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("selection", "error", "message"),
    [
        (None, TypeError, "selection: expected a Selection, got NoneType"),
        (((1, 1, 7, 2), 0), ValueError, "selection: expected rows >= 1, got 0"),
        (((1, 1, 6, 2), 1), ValueError, r"expected indices \[1 or 1, 1 or 1, 7, entries\], got shape \(1, 1, 6, 2\)"),
        (((1, 1, 7, 2), 1, 20), ValueError, "selection: expected indices from -1 to 19"),
        (((1, 1, 7, 2), 1, 0, torch.int64), TypeError, "selection: expected int32 indices, got torch.int64"),
    ],
)
def test_lists_that_are_not_accepted_are_named(selection, error, message):
    if selection is not None:
        shape, rows, value, dtype = (
            (*selection, 0, torch.int32)[:4] if len(selection) < 3 else (*selection, torch.int32)[:4]
        )
        selection = Selection(indices=torch.full(shape, value, dtype=dtype), rows=rows)
    q, k = torch.zeros(1, 1, SQ, 8), torch.zeros(1, 1, SK, 8)

    with pytest.raises(error, match=message):
        selected_attention(q, k, k, selection)


def test_lengths_that_change_before_the_backward_are_noticed():
    q, k = torch.zeros(1, 1, SQ, 8, requires_grad=True), torch.zeros(1, 1, SK, 8)
    lengths = torch.tensor([SK], dtype=torch.int32)
    o = selected_attention(q, k, k, Selection(indices=torch.zeros(1, 1, SQ, 1, dtype=torch.int32)), key_lengths=lengths)
    lengths -= 1

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_a_block_past_the_last_key_is_named_by_no_row():
    lists = torch.tensor([[[[1, 3, -1]]]], dtype=torch.int32)  # a GPU is handed indices that nobody has read
    found = prepared(Selection(indices=lists, keys=8))

    tables = namers_of(found, SK)
    assert (tables.namers[..., :1].tolist(), tables.begins.tolist()) == ([[[0]]], [[[0, 0, 1, 1]]])


def test_more_rows_than_an_index_counts_are_refused():
    rows = torch.zeros(8).expand(2**16, 2**15, 1, 8)
    selection = Selection(indices=torch.zeros(1, 1, 1, 1, dtype=torch.int32))

    with pytest.raises(ValueError, match="rows of all heads and sequences, got 2147483648"):
        selected_attention(rows, rows[:, :1], rows[:, :1], selection)
