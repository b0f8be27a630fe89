import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashverify.case import Bitmap, Case, Mask, visible
from flashverify.case.trees import trees
from flashverify.errors import UsageError

ALL = slice(None)


def by_definition(case: Case, b: int, i: int, j: int) -> bool:
    """The contract of each part, one pair at a time."""
    mask = case.mask
    len_q = mask.query_lengths[b] if mask.query_lengths is not None else case.seq_q
    len_k = mask.key_lengths[b] if mask.key_lengths is not None else case.seq_k
    position = i + (len_k - len_q if mask.causal == "bottom-right" else 0)
    seen = i < len_q and j < len_k
    if mask.causal is not None:
        seen = seen and j <= position
    if mask.window is not None:
        left, right = mask.window
        seen = seen and (left is None or j >= position - left) and (right is None or j <= position + right)
    if mask.tree is not None:
        prefix, node = case.seq_k - case.seq_q, i
        reach = set()
        while node >= 0:
            reach.add(node + prefix)
            node = mask.tree[node]
        seen = seen and (j < prefix or j in reach)
    return seen


@st.composite
def masked(draw):
    batch, seq_q, seq_k = draw(st.integers(1, 2)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    tree = draw(st.none() | trees(seq_q)) if seq_k >= seq_q else None
    side = st.none() | st.integers(0, 4)
    mask = Mask(
        causal=None if tree else draw(st.sampled_from((None, "top-left", "bottom-right"))),
        window=None if tree else draw(st.none() | st.tuples(side, side)),
        key_lengths=draw(st.none() | st.tuples(*[st.integers(0, seq_k)] * batch)),
        query_lengths=draw(st.none() | st.tuples(*[st.integers(0, seq_q)] * batch)),
        tree=tree,
    )
    return Case(batch=batch, seq_q=seq_q, seq_k=seq_k, mask=mask)


@given(masked())
def test_a_mask_is_the_and_of_its_parts(case):
    see = visible(case)
    if see is None:
        assert not case.mask.parts()
        return
    table = see(ALL, ALL).expand(case.batch, 1, case.seq_q, case.seq_k)

    for b in range(case.batch):
        for i in range(case.seq_q):
            assert [by_definition(case, b, i, j) for j in range(case.seq_k)] == table[b, 0, i].tolist()


@given(masked())
def test_a_part_of_the_mask_is_a_slice_of_the_whole(case):
    see = visible(case)
    if see is not None:
        rows, keys = slice(1, 4), slice(2, 5)

        assert torch.equal(see(ALL, ALL)[:, :, rows, keys], see(rows, keys))


@pytest.mark.parametrize("case", [Case(batch=0, mask=Mask(key_lengths=())), Case(seq_q=0, seq_k=3, mask=Mask(tree=()))])
def test_empty_problems_have_empty_masks(case):
    see = visible(case)

    assert see is not None
    assert see(ALL, ALL).numel() == 0


def test_a_part_that_cannot_be_evaluated_is_refused():
    with pytest.raises(UsageError, match=r"mask parts \['bitmap'\] cannot be evaluated yet"):
        visible(Case(mask=Mask(bitmap=Bitmap(128, 0))))


@pytest.mark.parametrize("nodes", [0, 1, 2, 33])
def test_trees_of_every_size_are_accepted(nodes):
    @given(trees(nodes))
    def check(parents):
        assert nodes == len(Mask(tree=parents).tree)

    check()
