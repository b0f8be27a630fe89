"""A pattern of blocks over packed sequences, and trees with causal or a window: the tables of bits, and the kernels under them."""

from itertools import pairwise

import pytest
import torch

from flashverify_kernels import Bitmap, BlockMask, Packed, TreeMask, attention_varlen
from flashverify_kernels.bitmap import pack
from flashverify_kernels.packed_blocks import bits_of_blocks

LENGTHS = [(0, 5), (21, 40), (0, 0), (9, 3), (1, 7)]
CU = [
    torch.tensor([0, *lengths], dtype=torch.int32, device="cpu").cumsum(0).int()
    for lengths in zip(*LENGTHS, strict=True)
]
SPARE, LONGEST = 3, 40


def drawn(*shape):
    return torch.rand(*shape, generator=torch.Generator("cpu").manual_seed(1), device="cpu") < 0.5


def within(live, rows, keys):
    """`[1, H, rows, LONGEST]`: what the blocks show, keys numbered within the sequence of the row."""
    whole = live.repeat_interleave(rows, 2).repeat_interleave(keys, 3)
    found = torch.zeros(1, live.shape[1], int(CU[0][-1]) + SPARE, LONGEST, dtype=torch.bool, device="cpu")
    for q, k in zip(pairwise(CU[0].tolist()), pairwise(CU[1].tolist()), strict=True):
        found[:, :, slice(*q), : k[1] - k[0]] = whole[:, :, slice(*q), slice(*k)]
    return found


@pytest.mark.parametrize("sizes", [(16, 16), (32, 16), (16, 48)])
def test_the_bits_are_those_of_the_blocks_of_the_buffers(sizes):
    rows, keys = (int(cu[-1]) + SPARE for cu in CU)
    live = drawn(1, 2, -(-rows // sizes[0]), -(-keys // sizes[1]))

    found = bits_of_blocks(BlockMask.from_bool(live, *sizes), Packed(*CU, 21, LONGEST), rows, LONGEST)

    inside = torch.zeros(rows, LONGEST, dtype=torch.bool, device="cpu")
    for (first, last), (_, n) in zip(pairwise(CU[0].tolist()), LENGTHS, strict=True):
        inside[first:last, :n] = True
    assert torch.equal(found & pack(inside), pack(within(live, *sizes)))


def test_packed_sequences_without_sequences_or_keys_have_no_bits():
    none = torch.zeros(1, dtype=torch.int32, device="cpu")
    empty = BlockMask.from_bool(drawn(1, 1, 1, 0), 16, 16)

    assert not bits_of_blocks(BlockMask.from_bool(drawn(1, 1, 1, 1), 16, 16), Packed(none, none, 0, 0), 4, 9).any()
    assert not bits_of_blocks(empty, Packed(*CU, 21, LONGEST), 4, LONGEST).any()


def test_varlen_attention_takes_blocks_as_the_bitmap_that_they_are(blocks):
    rows, keys = (int(cu[-1]) for cu in CU)
    live = drawn(1, 2, 2, 4)
    q, k, v, do = (
        torch.randn(n, 2, 16, generator=torch.Generator("cpu").manual_seed(n)) for n in (rows, keys, keys, rows)
    )
    options = {"max_q": 21, "max_k": LONGEST, "causal": "bottom-right", "config": blocks(16, 16)}
    bits = pack(within(live, 16, 16)[:, :, :rows])

    def outputs(**mask):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        o, lse = attention_varlen(*inputs, *CU, **options, **mask)
        o.backward(do)
        return [o, lse, *(x.grad for x in inputs)]

    for x, y in zip(outputs(blocks=BlockMask.from_bool(live, 16, 16)), outputs(bitmap=Bitmap(bits)), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize(
    "band", [{"causal": "top-left"}, {"window": (6, 4)}, {"causal": "bottom-right", "window": (3, None)}]
)
def test_a_tree_with_causal_or_a_window_is_what_both_show(make_case, see, blocks, band):
    parents = [max(node - 1 - node % 3, -1) for node in range(19)]
    case = make_case(heads=2, kv_heads=1, sq=19, sk=41)

    case.check(
        see(1, 19, 41, parents=parents, **band),
        tree=TreeMask.from_parents(parents, case.q.device),
        config=blocks(16, 16),
        **band,
    )
