"""Pages before a window are freed or kept, as the subject declares: their entries are garbage, or name pages with their keys."""

import dataclasses

import pytest
import torch

from flashverify import Supports, judge_case, parse_case, subject
from flashverify.campaign.worker import search
from flashverify.case import format_case
from flashverify.case.masks.predicate import visible
from flashverify.case.memory.materialize import materialize
from flashverify.case.space.fit import fitted
from flashverify.case.space.matrix import standard_matrix
from flashverify.case.space.strategies import cases

SHAPE = "fv1 batch=2 heads_q=2 heads_kv=1 seq_q=2 seq_k=37 dtype=fp32 klen=37,20 causal=bottom-right window=5,* page_size=4 backward=no"
FREED, KEPT = parse_case(f"{SHAPE} padding=nan"), parse_case(f"{SHAPE} padding=nan kept_pages=yes")
SUPPORTS = Supports(
    dtypes=("fp32",),
    masks=("causal", "window", "key_lengths"),
    causal=("bottom-right",),
    window_sides=("left",),
    page_sizes=(4, 16),
    always_paged=True,
    max_seq_q=4,
    backward=False,
)


def decode(p, first_of=lambda p, b: 0, left=0):
    """Walks over the pages of a sequence from the first one that it is told of, and masks what lies before the window."""
    x, size = p.paged("vllm"), p.pages.k.shape[1]
    o, lse = torch.zeros_like(p.q[..., :1]).expand(p.case.shape_o).clone(), torch.full(p.case.shape_o[:3], -torch.inf)
    seen = visible(p.case)(slice(0, p.case.seq_q), slice(0, p.case.seq_k)) if p.case.mask.parts() else None
    for b, length in enumerate(x.seq_lens.tolist()):
        first = first_of(p, b)
        numbers = x.block_table[b, first : -(-length // size)].long()
        group = p.case.heads_q // p.case.heads_kv
        k, v = (c[numbers].flatten(0, 1)[: length - first * size] for c in (x.key_cache, x.value_cache))
        k, v = (c.double().transpose(0, 1).repeat_interleave(group, 0) for c in (k, v))
        logits = p.q[b].double() @ k.mT * p.scale
        if seen is not None:
            mask = seen[b if seen.shape[0] > 1 else 0, :, :, first * size : length]
            logits = logits.masked_fill(~(mask | mask.roll(-left, -1)), -torch.inf)
        lse[b] = logits.logsumexp(-1)
        o[b] = (logits - lse[b].double().nan_to_num(neginf=0.0).unsqueeze(-1)).exp() @ v
    return o, lse


def first_in_window(p, b):
    left, keys = p.window[0], (p.case.keys_inside or (p.case.seq_k,) * p.case.batch)[b]
    rows = p.case.seq_q
    return max(0, keys - rows - left) // p.pages.k.shape[1] if p.window and left is not None else 0


def made(supports, **options):
    return subject(name="mine", supports=supports, device="cpu")(lambda p: decode(p, **options))


WALKS = dataclasses.replace(SUPPORTS, freed_pages=False)


def test_kept_pages_hold_their_keys_and_stand_in_the_table():
    freed, kept = (materialize(case)[0] for case in (FREED, KEPT))
    count = kept.pages.k.shape[0]
    for b, length in enumerate((37, 20)):
        for j in range(length):
            page = int(kept.pages.table[b, j // 4])
            assert torch.equal(kept.pages.k[page, j % 4], kept.k[b, :, j])
    assert (freed.pages.table[:, 0] >= count).all()
    assert torch.equal(kept.pages.table[:, 9][:1], freed.pages.table[:, 9][:1])
    assert torch.equal(kept.k.view(torch.int32), freed.k.view(torch.int32))


def test_a_kernel_that_walks_over_the_whole_table_is_right_where_it_declares_that():
    assert WALKS.refusal(FREED) == "kept_pages=no under a window to the left"
    assert not judge_case(made(WALKS), KEPT).failures
    assert judge_case(made(SUPPORTS), FREED, checks=("accuracy",)).failures


def test_a_kernel_that_begins_at_the_window_is_right_in_both():
    for case in (FREED, KEPT):
        assert not judge_case(made(SUPPORTS, first_of=first_in_window), case).failures


def test_a_kernel_that_forgets_the_window_is_found_in_kept_pages_too():
    found = judge_case(made(WALKS, left=1), KEPT, checks=("accuracy",)).failures
    assert {v.output for v in found} == {"o", "lse"}


def to_the_left(case):
    return case.mask.window is not None and case.mask.window[0] is not None


@pytest.mark.parametrize("supports", [SUPPORTS, WALKS])
def test_cases_are_drawn_as_declared(supports):
    drawn = search.draw(cases(supports), 60, 3)
    listed = standard_matrix(supports, device="cpu")

    assert any(map(to_the_left, drawn))
    assert any(map(to_the_left, listed))
    assert {case.storage.kept_pages for case in (*drawn, *listed) if to_the_left(case)} == {supports is WALKS}


def test_a_case_is_changed_to_fit():
    assert fitted(WALKS, FREED) == KEPT
    assert parse_case(format_case(KEPT)) == KEPT
