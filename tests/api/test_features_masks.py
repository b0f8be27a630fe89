"""Every mask of `assert_attention_close` and `oracle`: outputs of the definition pass, those of a slightly other mask fail."""

import math

import pytest
import torch

from flashverify import assert_attention_close
from tests.api.feature_problems import CU_K, CU_Q, DENSE, KEYS, ROWS, inputs_of


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


@pytest.mark.one_in(4)
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
