"""What comes back: the LSE, masks and their alignment, scales, rows without keys. A wrong value is no convention."""

import math

import pytest
import torch

from flashverify import Contract, Supports
from tests.probing.attention import BASE_2, attention, band, inferred, probed, suspects


def natural(p):
    return attention(p)


def base_2(p):
    return attention(p, lse_unit=BASE_2)


@pytest.mark.slow
def test_of_a_plain_function_nothing_but_what_it_lacks_is_inferred():
    found = probed(natural)

    assert not found.suspects
    assert found.exit_code == 0
    assert "lse_base" not in inferred(found, "contract")
    assert "masks" not in found.code


def test_a_base_2_lse_is_a_convention_of_who_declares_nothing():
    found = probed(base_2)

    assert inferred(found, "contract")["lse_base"] == "'2'"
    assert "lse_base='2'" in found.code
    assert not found.suspects


def test_a_base_2_lse_is_a_defect_where_a_natural_one_is_declared():
    found = probed(base_2, contract=Contract(lse_base="e", deterministic=True))

    assert suspects(found) == ["lse_base"]
    assert "lse_base" not in found.code
    assert found.exit_code == 1


def test_no_lse_is_a_convention_and_a_wrong_one_is_a_defect():
    assert "lse_base=None" in probed(lambda p: attention(p)[0], name="alone").code
    found = probed(lambda p: (attention(p)[0], -attention(p)[1]), name="minus")
    assert suspects(found) == ["the LSE"]


def turned(p):
    o, lse = attention(p)
    return o.transpose(1, 2), lse.transpose(1, 2)


def test_other_layouts_of_outputs_are_named_with_what_to_return():
    found = probed(turned, "lengths")
    notes = "\n".join(found.notes)

    assert "return o.transpose(1, 2)" in notes
    assert "return lse.transpose(1, 2)" in notes
    assert not found.suspects


@pytest.mark.parametrize("corner", ["top-left", "bottom-right"])
def test_the_corner_of_causal_is_a_convention(corner):
    def causal(p):
        return attention(p, mask=None if p.causal is None else band(p, corner=corner))

    found = probed(causal, "causal")

    assert inferred(found)["masks"] == "('causal',)"
    assert inferred(found)["causal"] == f"({corner!r},)"
    assert not found.suspects


def test_causal_off_by_one_is_a_defect_that_is_left_failing():
    def causal(p):
        return attention(p, mask=None if p.causal is None else band(p, corner=p.causal, shift=1))

    found = probed(causal, "causal")

    assert "causal" in suspects(found)
    assert "masks=('causal',)" in found.code


def test_a_mask_that_is_read_and_not_applied_is_a_defect_and_one_that_is_not_read_is_none():
    def deaf(p):
        assert p.window is None or len(p.window) == 2
        return attention(p)

    found = probed(deaf, "causal", "windows", "other parts of the mask")

    assert suspects(found) == ["window"]
    assert "causal" not in inferred(found).get("masks", "")


def test_causal_in_every_case_is_required():
    found = probed(lambda p: attention(p, mask=band(p, corner="top-left")), name="always")

    assert "required_masks=('causal',)" in found.code
    assert not found.suspects


SCALES = {
    "default": (lambda p: attention(p, scale=p.q.shape[-1] ** -0.5), "('default',)", []),
    "fixed": (lambda p: attention(p, scale=0.125), "(0.125,)", []),
    "asked": (lambda p: attention(p), "('positive', 'zero', 'negative')", []),
    "missing": (lambda p: attention(p, scale=1.0), None, ["the scale"]),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SCALES)
def test_a_scale_of_its_own_is_a_convention_and_none_is_a_defect(name):
    function, scales, wrong = SCALES[name]
    found = probed(function, "scales", name=name)

    assert inferred(found).get("scales") == scales
    assert suspects(found) == wrong


def zero(o, lse, dead, v):
    return o, torch.where(dead.squeeze(-1), 0.0, lse)


def mean(o, lse, dead, v):
    return torch.where(dead, v.mean(2, keepdim=True).detach().expand_as(o), o), lse


def lost(o, lse, dead, v):
    return torch.where(dead, math.nan, o), lse


def bottom_right(p, empty):
    mask = None if p.causal is None else band(p, corner=p.causal)
    return attention(p, mask=mask, empty=empty)


def test_a_constant_in_rows_without_keys_is_a_convention():
    found = probed(lambda p: bottom_right(p, zero), "causal", "rows without keys", name="zero")

    assert "empty_row_lse=0.0" in found.code
    assert not found.suspects


@pytest.mark.parametrize("empty", [pytest.param(mean, marks=pytest.mark.thorough), lost])
def test_the_mean_of_v_and_nan_in_rows_without_keys_are_defects(empty):
    found = probed(lambda p: bottom_right(p, empty), "causal", "rows without keys", name="odd")

    assert suspects(found) == ["O of a row that sees no key"]
    assert "empty_row" not in found.code


def test_nan_in_rows_without_keys_hides_no_alignment():
    def naive(p):
        s = p.q.float() @ p.k.float().mT * p.scale
        s = s if p.causal is None else s.masked_fill(~band(p, corner="bottom-right"), -torch.inf)
        return (s.softmax(-1) @ p.v.float()).to(p.q.dtype), s.logsumexp(-1)

    found = probed(naive, "causal", "rows without keys")

    assert inferred(found)["causal"] == "('bottom-right',)"
    assert suspects(found) == ["O of a row that sees no key"]


def test_what_is_wrong_outside_the_declaration_is_no_defect():
    def square(p):
        return attention(p, scale=p.scale if p.q.shape[2] == p.k.shape[2] else 2 * p.scale)

    found = probed(square, "lengths", supports=Supports(square=True))

    assert not found.suspects
    assert inferred(found)["square"] == "True"
    assert found.silent
