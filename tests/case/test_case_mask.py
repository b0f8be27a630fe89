import dataclasses
import itertools
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashverify.case import Bitmap, Blocks, Case, Mask, Packed, parse_case
from flashverify.case.masks.patterns import bitmap_tensor, blocks_tensor
from flashverify.case.masks.positions import Positions, positions, shared_positions
from flashverify.case.masks.predicate import visible
from flashverify.case.space.trees import trees

ALL = slice(None)


def sequence_of(cu, place):
    """(sequence, number within it, its length), or None behind the last one."""
    for s, (first, last) in enumerate(pairwise(cu)):
        if first <= place < last:
            return s, place - first, last - first
    return None


def by_definition(case: Case, b: int, h: int, i: int, j: int) -> bool:
    """The contract of each part, one pair at a time."""
    mask = case.mask
    if mask.bitmap is not None:
        table = bitmap_tensor(case)
        if not table[b % table.shape[0], h % table.shape[1], i, j]:
            return False
    if mask.blocks is not None:
        table = blocks_tensor(case)
        if not table[b % table.shape[0], h % table.shape[1], i // mask.blocks.rows, j // mask.blocks.keys]:
            return False
    parents, prefix, sequence = mask.tree, case.seq_k - case.seq_q, b
    if parents and isinstance(parents[0], tuple):
        parents = parents[b]
    if mask.packed is not None:
        row, key = sequence_of(mask.packed.cu_q, i), sequence_of(mask.packed.cu_k, j)
        if row is None or key is None or row[0] != key[0]:
            return False
        (_, i, len_q), (_, j, len_k) = row, key
        sequence = row[0]
        first = mask.packed.cu_q[sequence]
        parents, prefix = (mask.tree or ())[first : first + len_q], len_k - len_q
    else:
        len_q = mask.query_lengths[b] if mask.query_lengths is not None else case.seq_q
        len_k = mask.key_lengths[b] if mask.key_lengths is not None else case.seq_k
    position = i + (len_k - len_q if mask.causal == "bottom-right" else 0)
    seen = i < len_q and j < len_k
    if mask.causal is not None:
        opened = mask.prefix_lengths is not None and j < mask.prefix_lengths[sequence]
        seen = seen and (j <= position or opened)
    if mask.window is not None:
        left, right = mask.window
        seen = seen and (left is None or j >= position - left) and (right is None or j <= position + right)
    if mask.tree is not None:
        node, reach = i, set()
        while node >= 0 and seen:
            reach.add(node + prefix)
            node = parents[node]
        seen = seen and (j < prefix or j in reach)
    return seen


@st.composite
def masked(draw):
    batch, seq_q, seq_k = draw(st.integers(1, 2)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    packed = None
    if draw(st.booleans()):
        batch, count = 1, draw(st.integers(0, 3))
        cuts = [st.lists(st.integers(0, n), min_size=count, max_size=count) for n in (seq_q, seq_k)]
        packed = Packed(*((0, *sorted(draw(cut))) for cut in cuts))
    lengths = [(seq_q, seq_k)] if packed is None else packed.lengths()
    tree = None
    if all(keys >= rows for rows, keys in lengths) and draw(st.booleans()):
        tree = tuple(parent for rows, _ in lengths for parent in draw(trees(rows)))
        if packed is None and batch == 2 and draw(st.booleans()):
            tree = (tree, draw(trees(seq_q)))
    side, live, seed = st.none() | st.integers(0, 4), st.integers(0, 256), st.integers(0, 9)
    size = st.integers(1, 4)
    causal = None if tree is not None else draw(st.sampled_from((None, "top-left", "bottom-right")))
    window = None if tree is not None else draw(st.none() | st.tuples(side, side))
    prefixed = causal is not None and (window is None or window[1] is None)
    mask = Mask(
        causal=causal,
        window=window,
        prefix_lengths=draw(st.none() | st.tuples(*[st.integers(0, seq_k)] * (batch if packed is None else count)))
        if prefixed
        else None,
        key_lengths=draw(st.none() | st.tuples(*[st.integers(0, seq_k)] * batch)) if packed is None else None,
        query_lengths=draw(st.none() | st.tuples(*[st.integers(0, seq_q)] * batch)) if packed is None else None,
        packed=packed,
        tree=tree,
        blocks=draw(st.none() | st.builds(Blocks, size, size, live, seed, st.booleans(), st.booleans())),
        bitmap=draw(st.none() | st.builds(Bitmap, live, seed, st.booleans())),
    )
    return Case(batch=batch, heads_q=2, seq_q=seq_q, seq_k=seq_k, mask=mask)


@given(masked())
def test_a_mask_is_the_and_of_its_parts(case):
    see = visible(case)
    if see is None:
        assert not case.mask.parts()
        return
    table = see(ALL, ALL).expand(case.batch, 2, case.seq_q, case.seq_k)

    for b, h in itertools.product(range(case.batch), range(2)):
        for i in range(case.seq_q):
            assert [by_definition(case, b, h, i, j) for j in range(case.seq_k)] == table[b, h, i].tolist()


@pytest.mark.parametrize("causal", ["top-left", "bottom-right"])
@pytest.mark.parametrize(
    "rest",
    ["batch=2", "batch=2 window=1,*", "batch=2 klen=3,6 qlen=5,2", "batch=2 bitmap=128,1", "packed=0,2,5/0,4,6"],
)
def test_a_prefix_opens_the_causal_part(causal, rest):
    for prefix in itertools.product(range(7), repeat=2):
        case = parse_case(f"fv1 seq_q=5 seq_k=6 causal={causal} prefix={prefix[0]},{prefix[1]} {rest}")
        table = visible(case)(ALL, ALL).expand(case.batch, 1, 5, 6)

        for b, i in itertools.product(range(case.batch), range(5)):
            assert [by_definition(case, b, 0, i, j) for j in range(6)] == table[b, 0, i].tolist()


def test_each_entry_of_a_batch_sees_by_its_own_tree():
    case = parse_case("fv1 batch=2 seq_q=3 seq_k=4 tree=-1,0,0/-1,-1,1")
    table = visible(case)(ALL, ALL).expand(2, 1, 3, 4)[:, 0].int()

    assert str(case).endswith("tree=-1,0,0/-1,-1,1")
    assert table[0].tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    assert table[1].tolist() == [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]


@given(masked())
def test_a_part_of_the_mask_is_a_slice_of_the_whole(case):
    see = visible(case)
    if see is not None:
        rows, keys = slice(1, 4), slice(2, 5)

        assert torch.equal(see(ALL, ALL)[:, :, rows, keys], see(rows, keys))


EMPTY = [
    Case(batch=0, mask=Mask(key_lengths=())),
    Case(seq_q=0, seq_k=3, mask=Mask(tree=())),
    Case(seq_q=0, seq_k=3, mask=Mask(packed=Packed((0, 0), (0, 2)), blocks=Blocks(16, 16, 9, 1), bitmap=Bitmap(9, 1))),
    Case(seq_q=3, seq_k=0, mask=Mask(packed=Packed((0,), (0,)), blocks=Blocks(16, 16, 9, 1, butterfly=True))),
]


@pytest.mark.parametrize("case", EMPTY)
def test_empty_problems_have_empty_masks(case):
    see = visible(case)

    assert see is not None
    assert see(ALL, ALL).numel() == 0


@pytest.mark.parametrize("nodes", [0, 1, 2, 33])
def test_trees_of_every_size_are_accepted(nodes):
    @given(trees(nodes))
    def check(parents):
        assert nodes == len(Mask(tree=parents).tree)

    check()


def test_a_row_sees_its_own_sequence_and_rows_behind_the_last_see_nothing():
    table = visible(parse_case("fv1 seq_q=6 seq_k=5 packed=0,2,2,5/0,1,3,4"))(ALL, ALL)[0, 0]

    assert [row.tolist() for row in table.int()] == [[1, 0, 0, 0, 0]] * 2 + [[0, 0, 0, 1, 0]] * 3 + [[0] * 5]


def test_positions_count_within_the_sequence():
    at = positions(parse_case("fv1 seq_q=5 seq_k=6 packed=0,2,4/0,1,5 causal=bottom-right"))

    assert at.row_sequence.tolist() == [[0, 0, 1, 1, 2]]
    assert at.key_sequence.tolist() == [[0, 1, 1, 1, 1, 2]]
    assert at.row.tolist() == [[0, 1, 0, 1, 0]]
    assert at.key.tolist() == [[0, 0, 1, 2, 3, 0]]
    assert at.shift.tolist() == [[-1, -1, 2, 2, 0]]
    at = positions(parse_case("fv1 batch=2 seq_q=2 seq_k=3 klen=3,1 causal=bottom-right"))
    assert at.row_sequence.tolist() == [[0, 0], [1, 1]]
    assert at.shift.tolist() == [[1, 1], [-1, -1]]


def test_positions_are_moved_at_once_and_those_of_equal_extent_are_shared(monkeypatch):
    case = parse_case("fv1 seq_q=5 seq_k=6 packed=0,2,4/0,1,5 causal=bottom-right")
    other = parse_case("fv1 heads_q=2 seq_q=5 seq_k=6 packed=0,2,4/0,1,5 window=1,* window_align=bottom-right seed=3")
    fields = [field.name for field in dataclasses.fields(Positions)]
    here = positions(case)
    moves, to = [], torch.Tensor.to

    def moved(tensor, device):
        moves.append(device)
        return to(tensor, "cpu")

    monkeypatch.setattr(torch.Tensor, "to", moved)
    with torch.inference_mode():
        there = shared_positions(case, "cuda")

    assert moves == [torch.device("cuda")]
    assert all(torch.equal(getattr(there, name), getattr(here, name)) for name in fields)
    assert not there.row.is_inference()
    assert shared_positions(other, "cuda") is there
    assert shared_positions(parse_case("fv1 seq_q=5 seq_k=6 packed=0,2,4/0,1,5"), "cuda") is not there


def test_the_butterfly_joins_blocks_that_differ_in_one_bit():
    (table,) = blocks_tensor(parse_case("fv1 seq_q=64 seq_k=128 blocks=16,16,0,0,1"))[0]

    assert [[c for c in range(8) if table[r, c]] for r in range(4)] == [
        [0, 1, 2, 4],
        [0, 1, 3, 5],
        [0, 2, 3, 6],
        [1, 2, 3, 7],
    ]


@pytest.mark.parametrize("live", [0, 1, 128, 255, 256])
def test_the_share_of_live_pairs_and_blocks_is_the_declared_one(live):
    case = parse_case(f"fv1 batch=2 heads_q=3 seq_q=64 seq_k=100 bitmap={live},5,1 blocks=1,2,{live},5,0,1")
    for table, shape in ((bitmap_tensor(case), (2, 3, 64, 100)), (blocks_tensor(case), (2, 3, 64, 50))):
        assert shape == tuple(table.shape)
        assert abs(table.double().mean().item() - live / 256) < 0.02
        assert live in (0, 256) or not torch.equal(table[0, 0], table[1, 2])
        assert live not in (0, 256) or table.unique().tolist() == [live == 256]
    shared = parse_case(f"fv1 batch=2 heads_q=3 seq_q=64 seq_k=100 bitmap={live},5 blocks=16,16,{live},5")
    assert tuple(bitmap_tensor(shared).shape) == (1, 1, 64, 100)
    assert tuple(blocks_tensor(shared).shape) == (1, 1, 4, 7)
