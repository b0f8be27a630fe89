"""Which elements nobody writes is said by a rule that gives them on every case, and by none where none does."""

import dataclasses

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.unwritten_places import _rules
from flashverify.judge.verdict import Status, Verdict
from tests.diagnosis.stepwise import Stepwise

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=16 dim_v=8 dtype=fp32 "


_BEHIND = ": rows behind as many as the window has keys, the row's own among them."


class Unwritten(Stepwise):
    """Writes `output` where `where`, of the problem and its shape, says so."""

    def __init__(self, output, where):
        super().__init__()
        self.cut, self.where = output, where

    def backward(self, problem, forward):
        found = super().backward(problem, forward)
        whole = getattr(found, self.cut)
        part = torch.empty(whole.shape, dtype=whole.dtype)
        kept = self.where(problem, whole.shape).expand(whole.shape)
        part[kept] = whole[kept]
        return dataclasses.replace(found, **{self.cut: part})


def _from_dv(problem, shape):
    return torch.arange(shape[3]) < problem.v.shape[3]


def _with_keys(problem, shape):
    if problem.key_lengths is None:
        return torch.full((1, 1, 1, 1), problem.k.shape[2] > 0)
    return (problem.key_lengths > 0).view(-1, 1, 1, 1)


def _before_the_last(_problem, shape):
    return (torch.arange(shape[2]) < shape[2] - 1)[:, None]


def _up_to_six(_problem, shape):
    return (torch.arange(shape[2]) < 6)[:, None]


def _in_the_window(problem, shape):
    left = None if problem.window is None else problem.window[0]
    return (torch.arange(shape[2]) < (shape[2] if left is None else left + 1))[:, None]


def _by_chance(_problem, shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(shape[2])) < 0.5


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("output", "text", "where", "words"),
    [
        ("dk", CASE, _from_dv, ": channels from Dv on."),
        ("dq", CASE + "klen=0", _with_keys, ": rows of sequences without keys."),
        ("dv", CASE, _before_the_last, ": the last key of the buffer."),
        ("dv", CASE, _by_chance, "."),
        pytest.param("dv", CASE, _up_to_six, ": keys from 6 on.", marks=pytest.mark.thorough),
        ("dq", CASE + "causal=bottom-right window=1,*", _in_the_window, _BEHIND),
    ],
)
def test_what_is_not_written_is_said_by_its_rule(output, text, where, words):
    verdict = Verdict("accuracy", Status.FAIL, output=output, error="bound")
    found = diagnose(Unwritten(output, where), parse_case(text), verdict, seconds=60.0)
    assert found.name == "not-written"
    assert found.sentence == f"Elements of {output} are never written{words}"


@pytest.mark.parametrize(("group", "rows"), [(2, 5), (3, 4), (1, 5)])
def test_pairs_that_packed_rows_lose_are_told(group, rows):
    """A row is taken apart by two quotients, where one should be a remainder."""
    text = f"fv1 heads_q={2 * group} heads_kv=2 seq_q={rows} seq_k=7 dim_qk=8 dim_v=8 dtype=fp32"
    scene = look(Stepwise(), parse_case(text))
    made = {(r // rows, r // group) for r in range(rows * group)}
    rule = dict(_rules("o"))[
        "pairs of query and head that no packed row r has if its member is r divided by all queries and its query r divided by the group"
    ]
    found = rule(scene, "o", scene.outputs["o"].shape)[0, :, :, 0]

    assert found.tolist() == [[(h % group, i) not in made for i in range(rows)] for h in range(2 * group)]
    assert bool(found.any()) == (group > 1)
