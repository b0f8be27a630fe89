"""A tree together with a bitmap: the table of both, and the kernels under it."""

import random

import pytest
import torch

from flashverify_kernels import Bitmap, Packed, TreeMask
from flashverify_kernels.bitmap import pack
from flashverify_kernels.tree_bitmap import bits_of_both


def forest(nodes, seed):
    rng = random.Random(seed)
    return [rng.randrange(-1, node) for node in range(nodes)]


def tree_sees(parents, keys):
    """`[nodes, keys]` bool: the keys before the nodes, a node itself and its ancestors."""
    see = torch.zeros(len(parents), keys, dtype=torch.bool, device="cpu")
    see[:, : keys - len(parents)] = True
    for node, parent in enumerate(parents):
        if parent >= 0:
            see[node] |= see[parent]
        see[node, keys - len(parents) + node] = True
    return see


def drawn(*shape):
    return torch.rand(*shape, generator=torch.Generator("cpu").manual_seed(1), device="cpu") < 0.5


@pytest.mark.parametrize("keys", [5, 37, 64, 70, 101])
def test_the_table_of_both_is_their_intersection(keys):
    parents, bits = forest(5 if keys == 5 else 37, 3), drawn(2, 1, 5 if keys == 5 else 37, keys)

    found = bits_of_both(pack(bits), TreeMask.from_parents(parents, "cpu").words(2, len(parents)), keys, None)

    assert torch.equal(found, pack(bits & tree_sees(parents, keys)))


def test_the_table_of_both_has_a_tree_of_each_entry():
    forests, bits = [forest(37, 3), forest(37, 4)], drawn(1, 2, 37, 70)
    tree = TreeMask.from_parents([*forests[0], *forests[1]], "cpu", cu=[0, 37, 74])

    found = bits_of_both(pack(bits), tree.words(2, 37), 70, None)

    assert torch.equal(found, pack(bits & torch.stack([tree_sees(each, 70) for each in forests])[:, None]))


def test_the_table_of_packed_sequences_counts_from_the_nodes_of_each():
    lengths = [(0, 5), (33, 50), (0, 0), (40, 40), (1, 7)]
    cu = [torch.tensor([0, *n], dtype=torch.int32, device="cpu").cumsum(0).int() for n in zip(*lengths, strict=True)]
    parents, rows, spare = [forest(n, n) for n, _ in lengths], sum(n for n, _ in lengths), 3
    bits = drawn(1, 2, rows + spare, 50)
    tree = TreeMask.from_parents([parent for one in parents for parent in one], "cpu", cu=cu[0])

    found = bits_of_both(pack(bits), tree.bits[None, None], 0, Packed(*cu, 40, 50))

    for s, (_, keys) in enumerate(lengths):
        own = slice(int(cu[0][s]), int(cu[0][s + 1]))
        expected = torch.zeros(1, 2, lengths[s][0], 50, dtype=torch.bool, device="cpu")
        expected[..., :keys] = bits[:, :, own, :keys] & tree_sees(parents[s], keys)
        seen = found[:, :, own] & pack(torch.arange(50, device="cpu").lt(keys))
        assert torch.equal(seen, pack(expected)), s


def test_the_kernels_see_what_a_tree_and_a_bitmap_show(make_case, blocks):
    parents, bits = forest(35, 4), drawn(1, 2, 35, 70)
    case = make_case(heads=2, kv_heads=1, sq=35, sk=70)

    case.check(
        (bits & tree_sees(parents, 70)).to(case.q.device),
        tree=TreeMask.from_parents(parents, case.q.device),
        bitmap=Bitmap.from_bool(bits.to(case.q.device)),
        config=blocks(16, 32),
    )
