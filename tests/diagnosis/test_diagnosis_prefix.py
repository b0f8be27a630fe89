"""The masks of those wrong prefixes that the planted implementation, which has no packed sequences, cannot show."""

from types import SimpleNamespace

import pytest
import torch

from flashverify.case import parse_case
from flashverify.case.masks.positions import positions
from flashverify.case.memory.materialize import materialize
from flashverify.diagnosis.hypotheses.bands import BANDS
from flashverify.diagnosis.related_cases import windows
from flashverify.truth import inputs_of

PACKED = "fv1 seq_q=5 seq_k=6 packed=0,2,5/0,4,6 causal=top-left prefix=5,2"
WINDOW = "fv1 seq_q=5 seq_k=6 window=1,* causal=top-left prefix=3"


def sequence(i, cu):
    return next(s for s in (0, 1) if cu[s] <= i < cu[s + 1])


def packed(i, j, wrong):
    cu_q, cu_k, prefix = (0, 2, 5), (0, 4, 6), (5, 2)
    s, t = sequence(i, cu_q), sequence(j, cu_k)
    limit = prefix[s]
    if wrong == "prefix-of-buffer":
        return s == t and (j - cu_k[s] <= i - cu_q[s] or j < limit)
    right = s == t and (j - cu_k[s] <= i - cu_q[s] or j - cu_k[s] < limit)
    return right or 0 <= j - cu_k[s] < limit


def in_window(i, j, wrong):
    return (j >= i - 1 or j < 3) and (j <= i or j < 3)


@pytest.mark.parametrize(
    ("name", "text", "seen"),
    [
        ("prefix-of-buffer", PACKED, packed),
        ("prefix-over-next-sequence", PACKED, packed),
        ("prefix-outside-window", WINDOW, in_window),
    ],
)
def test_a_wrong_prefix_has_the_mask_of_its_sentence(name, text, seen):
    case = parse_case(text)
    inputs, _ = inputs_of(materialize(case)[0])
    scene = SimpleNamespace(case=case, at=positions(case), inputs=inputs)
    (semantics,) = [each for each in BANDS if each.name == name]

    (alternative,) = semantics.build(scene)

    table = alternative.inputs.visible.expand(1, 1, 5, 6)[0, 0]
    expected = torch.tensor([[seen(i, j, name) for j in range(6)] for i in range(5)])
    assert torch.equal(table, expected)
    see = inputs.visible(slice(None), slice(None)) if callable(inputs.visible) else inputs.visible
    assert not torch.equal(see.expand(1, 1, 5, 6)[0, 0], expected)


@pytest.mark.parametrize("text", [WINDOW, f"{PACKED} window=0,*"])
def test_beside_a_prefix_windows_of_other_sides_have_no_right_one(text):
    found = list(windows(parse_case(text)))

    assert len({each.mask.window for each in found}) >= 2
    assert {each.mask.window[1] for each in found} == {None}
    assert all(each.mask.prefix_lengths for each in found)
