"""Block masks out of lists of blocks are those of torch's `create_block_mask`, so that torch compiles nothing anew for them."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.adapters import flex_mods
from flashverify.adapters.flex_blocks import create, from_blocks
from flashverify.adapters.flex_mods import mask_mod_of
from flashverify.case.memory.materialize import materialize

CASES = (
    "fv1 batch=2 heads_q=2 heads_kv=1 seq_q=140 seq_k=260 causal=bottom-right window=130,* prefix=5,0",
    "fv1 heads_q=2 heads_kv=1 seq_q=12 seq_k=11 packed=0,5,5,12/0,4,6,11 causal=top-left",
    "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=1 seq_k=128 bitmap=128,3",
    "fv1 seq_q=256 seq_k=384 causal=top-left",
)
PARTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices")


@pytest.mark.parametrize("text", CASES)
def test_both_ways_make_one_block_mask(text):
    problem, _ = materialize(parse_case(text))
    case, mask = problem.case, mask_mod_of(problem)
    sizes = (case.batch, case.heads_q, case.seq_q, case.seq_k)
    wanted, found = (made(mask, sizes, torch.device("cpu"), 128) for made in (create, from_blocks))

    assert found.seq_lengths == wanted.seq_lengths
    assert found.BLOCK_SIZE == wanted.BLOCK_SIZE
    for part in (*PARTS, "full_q_num_blocks", "full_q_indices"):
        mine, its = getattr(found, part), getattr(wanted, part)
        assert torch.equal(mine, its), part
        assert (mine.dtype, mine.stride()) == (its.dtype, its.stride()), part


def test_calls_with_equal_masks_share_what_they_look_up():
    text = "fv1 batch=2 heads_q=2 heads_kv=1 seq_q=140 seq_k=260 causal=bottom-right window=130,*"
    (one, _), (other, _) = (materialize(parse_case(f"{text} seed={seed}")) for seed in (1, 2))
    found, again = (flex_mods._positions(p.case, p.q.device) for p in (one, other))

    assert found is again
    assert flex_mods._captured(one, 130, "left") is flex_mods._captured(other, 130, "left")
    assert flex_mods._captured(one, 130, "left") is not flex_mods._captured(other, 130, "right")
    assert flex_mods._captured(one, 130.0, "left").dtype == torch.float32
    starts = [getattr(found, field.name).storage_offset() for field in dataclasses.fields(found)]
    assert starts == [0] * 8
