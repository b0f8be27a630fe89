"""Each way to read codes wrongly, planted in kernels of plain torch, is what the hypothesis of its name says."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.hypotheses.code_formats import CODE_FORMATS
from flashverify.diagnosis.hypotheses.factors import FACTORS
from flashverify.diagnosis.hypotheses.quantised import QUANTISED
from flashverify.diagnosis.observe import look
from tests.diagnosis.test_diagnosis_selection import scene
from tests.quantised import plain as kernels
from tests.quantised.plain import plain

SHAPE = "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=4 seq_k=9 dim_qk=8 dim_v=8 backward=no"


def behind(x):
    return torch.cat([x[:, :, 1:], x[:, :, -1:]], 2)


def in_the_next_head(x):
    """Of a key the scale of the one behind in memory, which of the last key of a head is the first one of the next."""
    return torch.cat([x.flatten()[1:], torch.zeros(1)]).view_as(x)


def in_halves_of_a_block(x):
    """Low halves of bytes, filled up to eight of a block of 16 channels, then high ones."""
    filled = torch.full((*x.shape[:-1], 8 - x.shape[-1]), 8, dtype=x.dtype)
    return torch.cat([x & 15, filled, x >> 4], -1)[..., : 2 * x.shape[-1]]


SCALES = {
    "codes-scale-missing": ("e4m3/token/varied", lambda _, k, v: (k, torch.ones_like(v))),
    "codes-scale-twice": ("e4m3/head/varied", lambda _, k, v: (k * k, v)),
    "codes-scale-inverted": ("int8/head/coarse", lambda _, k, v: (k, 1 / v)),
    "codes-scale-swapped": ("int8/token/varied", lambda _, k, v: (k, k)),
    "codes-scale-of-neighbour": ("e5m2/token/varied", lambda _, k, v: (behind(k), v)),
    "codes-scale-as-largest": ("e4m3/head/varied", lambda _, k, v: (k / 448, v / 448)),
    "codes-scale-of-tile": ("e4m3/token/varied", lambda _, k, v: (k[:, :, :1].expand_as(k), v)),
    "codes-scale-of-place": (
        "int8/block2/varied",
        lambda view, k, v: (k, view.v_scale[..., [*range(5), 4, 4, 4, 4], None]),
    ),
    "codes-scale-of-other-head": ("e4m3/token/varied", lambda _, k, v: (k[:1].expand_as(k), v[:1].expand_as(v))),
    "codes-scale-for-all": ("e4m3/token/varied", lambda _, k, v: (k, v.amax(2, keepdim=True).expand_as(v))),
    "codes-scale-rounded": ("int8/token/fitted", lambda _, k, v: (k, v.to(torch.float8_e4m3fn).float())),
}


CODES = (*QUANTISED, *CODE_FORMATS)


def answers(subject, quantised, asked=CODES):
    seen = look(subject, parse_case(f"{SHAPE} quantised={quantised}"))
    return {wrong.name: Claim(wrong).answer(seen) for wrong in asked}


def clear(found):
    return {name for name, answer in found.items() if answer is Answer.CLEAR}


@pytest.mark.parametrize("name", SCALES)
def test_a_wrong_scale_is_what_its_hypothesis_says(name):
    quantised, scales = SCALES[name]

    asked = [wrong for wrong in CODES if wrong.name == name]

    assert clear(answers(plain("folded", scales=scales), quantised, asked)) == {name}


def test_the_scale_of_the_last_key_may_be_that_of_the_next_head():
    subject = plain("folded", scales=lambda _, k, v: (in_the_next_head(k), in_the_next_head(v)))

    assert "codes-scale-of-neighbour" in clear(answers(subject, "int8/token/varied"))


def test_a_factor_that_is_not_divided_out_is_one_of_o():
    twice = plain("folded", scales=lambda _, k, v: (k, 2 * v))

    assert clear(answers(twice, "int8/head/fitted", FACTORS)) == {"o-times-a-power-of-two"}
    assert clear(answers(plain("folded", scales=lambda _, k, v: (k, 3 * v)), "int8/head/fitted", FACTORS)) == set()


def test_zero_points_that_are_left_out_are_missing_and_nothing_else():
    found = answers(plain("folded", shift=False), "int8/head/fitted/zeros")

    assert clear(found) == {"codes-zero-missing"}


@pytest.mark.parametrize(
    ("name", "quantised", "wrong"),
    [
        ("codes-format", "e5m2/head/fitted", lambda x: x.view(torch.float8_e4m3fn).float()),
        ("codes-format", "int8/head/fitted", lambda x: x.view(torch.uint8).float()),
        ("codes-subnormal", "e4m3/head/coarse", lambda x: torch.where(x.float().abs() < 2.0**-6, 0.0, x.float())),
        ("codes-sign", "e4m3/head/fitted", lambda x: x.float().abs()),
        ("codes-halves", "int4/head/fitted", lambda x: torch.cat([x & 15, x >> 4], -1).float()),
        ("codes-halves", "int4/head/fitted", lambda x: in_halves_of_a_block(x).float()),
    ],
)
def test_codes_that_are_read_wrongly_are_what_their_hypothesis_says(monkeypatch, name, quantised, wrong):
    monkeypatch.setattr(kernels, "numbers", lambda codes, _: wrong(codes))

    assert clear(answers(plain("folded"), quantised)) == {name}


@pytest.mark.slow
@pytest.mark.thorough
def test_a_diagnosis_names_the_operand_whose_scale_is_missing():
    subject, case = plain("folded", q_scales=torch.ones_like), parse_case(f"{SHAPE} quantised=e4m3/token/varied/q")
    verdict = judge_case(subject, case, Plan.only("accuracy", case)).failures[0]

    found = diagnose(subject, case, verdict, seconds=300)

    assert found.name == "codes-scale-missing"
    assert "of q" in found.sentence


def test_without_codes_there_is_none_and_with_codes_every_other_hypothesis_can_be_asked():
    found, _ = scene("fv1 seq_q=3 seq_k=5 dim_qk=8 dim_v=8 backward=no")
    assert not any(list(wrong.build(found)) for wrong in QUANTISED)

    seen = look(plain("folded"), parse_case(f"{SHAPE} quantised=e4m3/token/varied/q"))

    assert {Claim(wrong).answer(seen) for wrong in SEMANTICS}.isdisjoint({Answer.CLEAR})
