"""Elements that hold the exact values of other places: the rule is read off and said."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.diagnosis.readings.elsewhere.values import values_elsewhere
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain
from tests.fast_tier import fast_one_in

CASE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=37 seq_k=41 dtype=fp32 seed=1"
FORWARD = f"{CASE} backward=no"


def moved(**changes):
    """Right, but for outputs that a function of the output and the problem changes."""

    class Subject(Plain):
        def of(self, problem, found):
            changed = {
                name: change(getattr(found, name), problem) for name, change in changes.items() if hasattr(found, name)
            }
            return dataclasses.replace(found, **changed)

        def forward(self, problem):
            return self.of(problem, super().forward(problem))

        def backward(self, problem, forward):
            return self.of(problem, super().backward(problem, super().forward(problem)))

    return Subject()


def swapped():
    class Subject(Plain):
        def backward(self, problem, forward):
            found = super().backward(problem, forward)
            return dataclasses.replace(found, dk=found.dv, dv=found.dk)

    return Subject()


def rows(of):
    return lambda x, problem: x[:, :, of(torch.arange(x.shape[2])).clamp(0, x.shape[2] - 1)]


def heads(of):
    return lambda x, problem: x[:, of(torch.arange(x.shape[1]), x.shape[1] // problem.k.shape[1])]


def padded(tile):
    """Heads take a multiple of `tile` rows in memory; read as if they took no more than they have."""

    def change(x, problem):
        wide = torch.nn.functional.pad(x, (0, -x.shape[2] % tile), value=7.0)
        return wide.flatten()[: x.numel()].view_as(x)

    return change


def rows_before_heads(x, problem):
    return x.transpose(1, 2).contiguous().view(x.shape)


def after_row_20(of):
    return lambda x, problem: torch.cat((x[:, :, :20], rows(of)(x, problem)[:, :, 20:]), 2)


def members_before_rows(x, problem):
    """O of packed row r, row r // group of member r % group, as row r % Sq of member r // Sq."""
    group = problem.q.shape[1] // problem.k.shape[1]
    grouped = x.unflatten(1, (-1, group))
    return grouped.transpose(2, 3).reshape(grouped.shape).flatten(1, 2)


MOVED = {
    "packed row member * Sq + row of its group (packed row r is row r // group of member r % group)": (
        moved(o=members_before_rows),
        FORWARD,
        "o",
    ),
    "row i + 1": (moved(o=rows(lambda i: i + 1)), FORWARD, "o"),
    "row i - 1": (moved(lse=after_row_20(lambda i: i - 1)), FORWARD, "lse"),
    "row i % 16": (moved(lse=rows(lambda i: i % 16)), FORWARD, "lse"),
    "the first row of its 16": (moved(o=rows(lambda i: i - i % 16)), FORWARD, "o"),
    "the first head of its group": (moved(lse=heads(lambda h, group: h - h % group)), FORWARD, "lse"),
    "head h // group": (moved(dq=heads(lambda h, group: h // group)), CASE, "dq"),
    "the sequence in reverse order": (moved(o=lambda x, _: x.flip(0)), f"{FORWARD} klen=41,20", "o"),
    "the head h and row i that stand at h * ceil(S / 32) * 32 + i of memory": (moved(lse=padded(32)), FORWARD, "lse"),
    "the head h and row i that stand at i * H + h of memory": (moved(o=rows_before_heads), FORWARD, "o"),
    "the key in reverse order": (moved(dk=lambda x, _: x.flip(2)), CASE, "dk"),
    "channel c ^ 1": (moved(o=lambda x, _: x[..., torch.arange(x.shape[-1]) ^ 1]), FORWARD, "o"),
    "the same channel of the other half": (moved(dv=lambda x, _: x.roll(x.shape[-1] // 2, -1)), CASE, "dv"),
    "row i + Sk - Sq": (moved(o=lambda x, p: rows(lambda i: i + p.k.shape[2] - p.q.shape[2])(x, p)), FORWARD, "o"),
    "dv at the same place": (swapped(), CASE, "dk"),
}
"""By the place that is said: the subject, the case and the output."""


def said(subject, case, output):
    trials = Trials(subject, 60.0)
    scene = trials.scene(parse_case(case))
    assert output in scene.failures
    return values_elsewhere(trials, scene, output)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("place", fast_one_in(3, MOVED))
def test_the_place_whose_values_stand_there_is_said(place):
    sentences = said(*MOVED[place])

    assert sentences == (f"Every wrong element of {MOVED[place][2]} holds the exact value of {place}.",)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, _: x * 1.01,
        lambda x, _: x.roll(1, 2) + 0.01,
        lambda x, _: torch.zeros_like(x),
        lambda x, _: (x + x.roll(1, 1)) / 2,
    ],
    ids=["scaled", "shifted and added to", "zero", "mean of two heads"],
)
def test_values_of_no_other_place_get_no_sentence(change):
    assert said(moved(o=change), FORWARD, "o") == ()


def test_a_rule_that_holds_on_one_case_alone_is_not_said():
    def change(x, problem):
        step = 1 if problem.q.shape[2] == 37 else 2
        return rows(lambda i: i + step)(x, problem)

    assert said(moved(o=change), FORWARD, "o") == ()


def test_a_case_with_another_number_of_splits_refutes_no_rule():
    class Subject(Plain):
        def form(self, case):
            return dataclasses.replace(super().form(case), n_splits=1 + (case.seq_k > 60))

        def forward(self, problem):
            found = super().forward(problem)
            split = problem.case.seq_k > 60
            return dataclasses.replace(found, o=2 * found.o if split else found.o.roll(-1, 2))

    trials = Trials(Subject(), 300.0)
    trials.scene(parse_case(FORWARD.replace("seq_k=41", "seq_k=70")))
    found = values_elsewhere(trials, trials.scene(parse_case(FORWARD)), "o")

    assert found
    assert all(words.endswith("; with other launch parameters it is wrong in another way.") for words in found)
