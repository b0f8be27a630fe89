"""The registries of mask parts, modifiers and tensors, and what follows from one part's file alone."""

import dataclasses
from itertools import pairwise

import pytest
import torch

from flashverify.case import Case, Logits, Mask, Problem, parse_case
from flashverify.case.masks.mask import PARTS, drawn_anew, of_sequences, without_part
from flashverify.case.masks.predicate import hidden_by, visible, visible_parts
from flashverify.case.memory.materialize import materialize
from flashverify.case.modifiers.logits import MODIFIERS, modifiers_of
from flashverify.case.quantised.tensors import QUANTISED_TENSORS
from flashverify.case.tensors import TENSORS

MASKED = [
    "causal=bottom-right window=3,1 klen=7,11 qlen=9,4 batch=2",
    "causal=top-left packed=0,4,4,8/0,3,6,10 bitmap=200,1,1 heads_q=2",
    "tree=-1,0,0,1,1,3,2,0,7 klen=10,12 batch=2",
    "packed=0,3,7/0,5,11 tree=-1,0,0,-1,0,1,1 blocks=16,16,256,0",
    "blocks=2,3,100,3,0,1 bitmap=100,4 batch=2 heads_q=2 heads_kv=2",
    "window=*,*",
]


def pairs_of(case):
    return slice(0, case.seq_q), slice(0, case.seq_k)


def seen(case):
    return visible(case)(*pairs_of(case)).expand(case.batch, case.heads_q, case.seq_q, case.seq_k)


def parsed(text):
    return parse_case(f"fv1 seq_q=9 seq_k=12 {text}")


def test_every_field_is_registered_and_every_registered_one_is_a_field():
    assert [part.name for part in PARTS] == [field.name for field in dataclasses.fields(Mask)]
    of_logits = [modifier.name for modifier in MODIFIERS if modifier.section == "logits"]
    assert of_logits == [field.name for field in dataclasses.fields(Logits)]
    assert all(hasattr(Case(), modifier.name) for modifier in MODIFIERS if not modifier.section)
    assert set(TENSORS) | {"case", "pages"} == {field.name for field in dataclasses.fields(Problem)}


@pytest.mark.parametrize("text", MASKED)
def test_a_pair_is_hidden_by_a_part_just_where_it_is_not_visible(text):
    case = parsed(text)
    everywhere = torch.ones(case.batch, case.heads_q, case.seq_q, case.seq_k).nonzero()
    rest = seen(case)
    behind = torch.zeros_like(rest)
    if case.mask.packed is not None:  # rows and keys of no sequence, which no part of the mask is asked about
        behind[:, :, case.mask.packed.cu_q[-1] :] = True
        behind[:, :, :, case.mask.packed.cu_k[-1] :] = True
    hidden = torch.stack(list(hidden_by(case, everywhere).values())).any(0).view(rest.shape)

    assert torch.equal(hidden | behind, ~rest | behind)
    whole = torch.ones_like(rest)
    for part in visible_parts(case).values():
        whole = whole & part
    assert torch.equal(whole, rest)


@pytest.mark.parametrize("text", MASKED)
def test_a_tile_of_the_mask_is_a_part_of_it(text):
    case = parsed(text)
    tile = visible(case)(slice(2, 7), slice(3, 12)).expand(case.batch, case.heads_q, 5, 9)

    assert torch.equal(tile, seen(case)[:, :, 2:7, 3:12])


def test_a_packed_sequence_alone_sees_what_it_saw_among_others():
    case = parsed("packed=0,3,7/0,5,11 tree=-1,0,0,-1,0,1,1")
    packed = case.mask.packed
    for s, ((q0, q1), (k0, k1)) in enumerate(zip(pairwise(packed.cu_q), pairwise(packed.cu_k), strict=True)):
        mask = of_sequences(case.mask, [s], None)
        alone = dataclasses.replace(case, seq_q=q1 - q0, seq_k=k1 - k0, mask=mask)
        assert torch.equal(seen(alone), seen(case)[:, :, q0:q1, k0:k1])


def test_a_sequence_of_a_batch_alone_sees_what_it_saw_among_others():
    case = parsed("causal=bottom-right window=3,1 klen=7,11,0 qlen=9,4,5 batch=3")
    for b in range(3):
        alone = dataclasses.replace(case, batch=1, mask=of_sequences(case.mask, [b], None))
        assert torch.equal(seen(alone), seen(case)[b : b + 1])


def test_patterns_are_drawn_anew_and_the_other_parts_stay():
    case = parsed("causal=top-left bitmap=256,1 blocks=16,16,100,2")
    mask = drawn_anew(case.mask, 9)

    assert (mask.bitmap.seed, mask.bitmap.live, mask.blocks.seed, mask.blocks.live) == (9, 128, 9, 100)
    assert dataclasses.replace(mask, bitmap=None, blocks=None) == Mask(causal="top-left")
    assert without_part(case.mask, "causal").parts() == {"bitmap", "blocks"}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_simpler_values_are_others_and_keep_their_text(part):
    for text in MASKED:
        case = parsed(text)
        value = getattr(case.mask, part.name)
        if value is not None:
            assert part.parse(part.format(value)) == value
            for simpler in part.simpler(value):
                assert simpler != value
                assert part.parse(part.format(simpler)) == simpler


def test_a_case_has_the_tensors_that_the_table_says():
    case = parsed("alibi=yes sink=yes bias=head softcap=3 relative_bias=8,20 dropout=0.5 dlse=yes klen=5 bitmap=9,9")
    problem, _ = materialize(case)

    named = ["softcap", "alibi", "bias", "sink", "relative_bias", "dropout"]
    assert [modifier.name for modifier in modifiers_of(case)] == named
    absent = {
        "query_lengths",
        "cu_q",
        "cu_k",
        "blocks",
        "prefix_lengths",
        "selection",
        *(spec.name for spec in QUANTISED_TENSORS),
    }
    for name, spec in TENSORS.items():
        tensor = getattr(problem, name)
        assert (tensor is None) == (name in absent)
        if tensor is not None:
            assert tensor.dim() == len(spec.axes)
            sizes = {"row": case.seq_q, "key": case.seq_k, "head_kv": case.heads_kv, "bucket": 8, "distance": 41}
            assert all(tensor.shape[axis] == sizes[at] for axis, at in enumerate(spec.axes) if at in sizes)
    assert len(problem.tensors()) == len(TENSORS) - len(absent)
