"""What a kernel takes each code for, read off the kernel."""

import pytest
import torch

import tests.quantised.plain as quantised
from flashverify.case.text import parse_case
from flashverify.diagnosis.readings.code_tables import code_tables
from flashverify.diagnosis.readings.codes import codes_in_effect
from flashverify.diagnosis.trials import Trials

TEXT = "fv1 heads_q=2 heads_kv=2 dim_qk=16 dim_v=16 dtype=fp16 backward=no "
SIZES = ("seq_q=6 seq_k=9", "seq_q=5 seq_k=12", "seq_q=3 seq_k=20")
NUMBERS = quantised.numbers


def without_subnormals(codes, name):
    x = NUMBERS(codes, name)
    return torch.where(x.abs() < 2.0**-6, 0.0, x) if name == "e4m3" else x


def minus_zero_is_nan(codes, name):
    x = NUMBERS(codes, name)
    return torch.where(codes.view(torch.uint8) == 0x80, torch.nan, x) if name == "e4m3" else x


def lowest_is_symmetric(codes, name):
    return NUMBERS(codes, name).clamp(min=-127.0)


@pytest.mark.parametrize(
    ("numbers", "codes", "words"),
    [
        (without_subnormals, "e4m3", ["codes of K and V are read as e4m3 with subnormal numbers as 0"]),
        (
            minus_zero_is_nan,
            "e4m3",
            ["some codes of K and V are read as other numbers: 0x80 as nan, not -0"],
        ),
        (
            lowest_is_symmetric,
            "int8",
            ["some codes of K and V are read as other numbers: 0x80 as -127, not -128"],
        ),
        (NUMBERS, "e4m3", []),
        (NUMBERS, "e5m2", []),
        (NUMBERS, "int8", []),
        (NUMBERS, "int4", []),
    ],
)
def test_the_table_of_the_codes_is_read(monkeypatch, numbers, codes, words):
    assert said(monkeypatch, numbers, codes, [0x80, 0x01]) == words


def test_codes_that_a_failing_case_lacks_are_not_what_is_wrong(monkeypatch):
    assert said(monkeypatch, lowest_is_symmetric, "int8", [0x01, 0x02]) == []


def said(monkeypatch, numbers, codes, held):
    """What is said of cases whose K and V hold two codes alone."""
    monkeypatch.setattr(quantised, "numbers", numbers)
    trials = Trials(quantised.plain(), 300)
    cases = [parse_case(f"{TEXT}{size} quantised={codes}/tensor/fitted regime=tiny seed=3") for size in SIZES]
    scenes = [trials.scene(case) for case in cases]
    for scene in scenes:
        for name in ("k_codes", "v_codes"):
            given = getattr(scene.problem, name)
            given.copy_(torch.tensor(held, dtype=torch.uint8).repeat(given.shape[-1] // 2).view(given.dtype))
    return [each.words for each in code_tables(trials, scenes)]


def of_heads(k, to):
    """What query head h of as many again as there are kv heads takes of these."""
    heads = k.shape[1]
    return k[:, to(torch.arange(2 * heads), heads)]


@pytest.mark.parametrize(
    ("scales", "words"),
    [
        (
            lambda _, k, v: (of_heads(k, lambda h, heads: h % heads), v),
            ["K is read as (scale of kv head h % Hkv for query head h) * code"],
        ),
        (
            lambda _, k, v: (k, of_heads(v, lambda h, heads: h // heads)),
            ["V is read as (scale of kv head h // Hkv for query head h) * code"],
        ),
        pytest.param(
            lambda _, k, v: (of_heads(k, lambda h, heads: (5 * h) // 3 % heads), v),
            [],
            marks=[pytest.mark.slow, pytest.mark.thorough],
        ),
    ],
    ids=["K", "V", "an order without a name"],
)
def test_a_scale_by_another_number_of_the_head_is_said(scales, words):
    trials = Trials(quantised.plain("folded", scales=scales), 300)
    text = TEXT.replace("heads_q=2 heads_kv=2", "heads_q=6 heads_kv=3") + "quantised=int8/head/varied "
    scenes = [trials.scene(parse_case(f"{text}{size} seed={seed}")) for seed, size in enumerate(SIZES)]

    assert [each.words for each in codes_in_effect(trials, scenes)] == words
