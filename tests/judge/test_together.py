"""Outputs compared in one table: exactly what each is said to be by itself."""

import math

import pytest
import torch

from flashverify.judge import together
from flashverify.judge.compare import compare_output
from flashverify.judge.together import Question, answers_if_wrong, compare_outputs, compared_in_one_table
from flashverify.numerics.result import OutputBound

SHAPES = {"o": (2, 3, 5, 8), "lse": (2, 3, 5), "dk": (2, 1, 7, 8), "dv": (2, 1, 7, 4), "dsink": (3,)}


def flag(shape, share, generator):
    return torch.rand(shape, generator=generator) < share


def question(name, seed, *, wrong=0.0, masks=0.0, dtype=torch.float16, far=0.0):
    """An output near its exact values; `wrong`, `masks` and `far` are shares of elements that are wrong, in masks, and near the end of the range."""
    draw, shape = torch.Generator().manual_seed(seed), SHAPES[name]
    expected = torch.randn(shape, generator=draw, dtype=torch.float64)
    bound = torch.rand(shape, generator=draw, dtype=torch.float64) * 0.1 + 0.01
    got = (expected + (torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1) * bound * 0.9).to(dtype)
    got = got.where(~flag(shape, wrong, draw), got + 1.0)
    bound = bound.where(~flag(shape, masks / 2, draw), torch.inf)
    may, must = flag(shape, far, draw), flag(shape, far / 4, draw)
    got = got.where(~(may & flag(shape, 0.5, draw)), torch.inf * torch.sign(expected).to(dtype))
    got = got.where(~must, torch.inf * torch.sign(expected).to(dtype))
    pinned = flag(shape, masks, draw) if masks else None
    return Question(
        output=name,
        got=got if pinned is None or wrong else got.masked_fill(pinned, -math.inf if name == "lse" else 0.0),
        expected=expected,
        bound=OutputBound(
            bound=bound,
            self_error=bound.clamp(max=1.0) * 1e-6,
            may_overflow=may,
            may_flip=flag(shape, far / 4, draw),
            must_overflow=must,
            uninformative=flag(shape, 0.1, draw),
        ),
        mode="end-to-end",
        taint=flag((shape[0], *[1] * (len(shape) - 1)), masks, draw) if masks else None,
        pinned=pinned,
        pinned_value=-math.inf if name == "lse" else 0.0,
        undefined=flag(shape, masks, draw) if masks and seed % 2 else None,
    )


KINDS = {
    "right": {},
    "a few wrong": {"wrong": 0.02},
    "masked": {"masks": 0.2},
    "masked and wrong": {"masks": 0.2, "wrong": 0.1},
    "at the end of the range": {"far": 0.3},
    "everything": {"far": 0.2, "masks": 0.3, "wrong": 0.01},
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_says_of_each_output_what_is_said_of_it_alone(kind, seed):
    questions = [
        question(name, 10 * seed + n, dtype=torch.float32 if name == "lse" else torch.bfloat16, **KINDS[kind])
        for n, name in enumerate(SHAPES)
    ]

    assert [each.answer() for each in questions] == compared_in_one_table(questions)


@pytest.mark.parametrize(
    "kinds", [("right", "masked", "a few wrong"), ("at the end of the range", "right", "everything")]
)
def test_outputs_with_and_without_masks_stand_in_one_table(kinds):
    names = ("o", "lse", "dk")
    questions = [question(name, n, **KINDS[kind]) for n, (name, kind) in enumerate(zip(names, kinds, strict=True))]

    assert [each.answer() for each in questions] == compared_in_one_table(questions)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_a_failure_of_its_output_alone(value):
    questions = [question(name, n) for n, name in enumerate(SHAPES)]
    questions[1].got[1, 2, 3] = value
    found = compared_in_one_table(questions)

    assert [n for n, each in enumerate(found) if each.verdicts] == [1]
    assert found[1].verdicts[0].index == (1, 2, 3)
    assert found == [each.answer() for each in questions]


def test_an_output_of_which_nothing_is_judged_has_no_ratio():
    questions = [question(name, n) for n, name in enumerate(("o", "dk"))]
    questions[1].bound.bound.fill_(torch.inf)
    found = compared_in_one_table(questions)

    assert found == [each.answer() for each in questions]
    assert found[1].stats.index == ()


def test_only_a_gpu_compares_in_tables_and_only_what_fits(monkeypatch):
    tables = []
    monkeypatch.setattr(together, "compared_in_one_table", lambda given: tables.append(len(given)) or [])
    questions = [question(name, n) for n, name in enumerate(("o", "dk"))]

    compare_outputs(questions)
    assert tables == []
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    compare_outputs(questions)
    assert tables == [2]
    monkeypatch.setattr(together, "_TABLE", 300)
    assert compare_outputs(questions) == [
        compare_output(q.output, q.got, q.expected, q.bound, mode=q.mode) for q in questions
    ]
    assert tables == [2]


def test_outputs_that_fit_no_common_table_stand_in_several(monkeypatch):
    tables = []
    monkeypatch.setattr(
        together, "compared_in_one_table", lambda given: tables.append([q.output for q in given]) or given
    )
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(together, "_TABLE", 2 * 240)
    questions = [question(name, n) for n, name in enumerate(SHAPES)]

    assert compare_outputs(questions) == questions
    assert tables == [["o", "lse"], ["dk", "dv", "dsink"]]


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_outputs_of_a_gpu_are_told_with_one_wait(kind, monkeypatch):
    questions = [question(name, n, **KINDS[kind]) for n, name in enumerate(SHAPES)]
    alone = [each.answer_if_wrong() for each in questions]
    waits, tolist = [], torch.Tensor.tolist
    monkeypatch.setattr(together.Question, "answer_if_wrong", None)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: waits.append(x) or tolist(x))

    found = answers_if_wrong(questions)

    assert [each.verdicts for each in found] == [each.verdicts for each in alone]
    assert [each.stats.output for each in found] == list(SHAPES)
    assert kind != "right" or (found == alone and len(waits) == 1)
