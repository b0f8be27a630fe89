"""Operands, parts of a merge, logits and row sums that are those of other places or wrong by their value: each is said."""

import dataclasses
import itertools

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.readings.elsewhere.values import values_elsewhere
from flashverify.diagnosis.readings.fresh import scenes_of
from flashverify.diagnosis.readings.operands import operands_in_effect
from flashverify.diagnosis.readings.unread import unread_inputs
from flashverify.diagnosis.readings.weights.in_effect import weights_in_effect
from flashverify.diagnosis.trials import Trials
from flashverify.outputs import FORWARD
from tests.diagnosis.online import online
from tests.diagnosis.planted import Plain, planted

TEXT = "fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 backward=no "
SIZES = [TEXT.replace("seq_q=6 seq_k=9", f"seq_q={n} seq_k={2 * n + 5}") + f" seed={n}" for n in (6, 9, 18)]


def scenes(subject, more="", texts=SIZES):
    """Trials and the failing runs."""
    trials = Trials(subject, 300)
    found = [trials.scene(parse_case(f"{text} {more}")) for text in texts]
    assert all(scene.failures for scene in found), "the planted defect does not show"
    return trials, found


def moved(**tensors):
    """The forward of a problem of which some tensors lie elsewhere."""

    class Moved(Plain):
        supports = dataclasses.replace(Plain.supports, kv=("separate", "shared"))

        def forward(self, problem):
            changed = {name: move(getattr(problem, name)) for name, move in tensors.items()}
            return super().forward(dataclasses.replace(problem, **changed))

    return Moved()


def pairs(x):
    at = torch.arange(x.shape[2]) ^ 1
    return x[:, :, torch.where(at < x.shape[2], at, at ^ 1)]


def rest_of_key_before(k):
    before = torch.cat([k[:, :, :1], k[:, :, :-1]], 2)
    return torch.cat([k[..., :8], before[..., 8:]], -1)


def rest_of_the_group(q):
    """The last channels of the first of every two heads, for both."""
    return torch.cat([q[..., :8], q[:, torch.arange(q.shape[1]) // 2 * 2, :, 8:]], -1)


SHARED = "kv=shared"
GROUPS = "heads_q=4"
OPERANDS = [
    ("V is read of key j ^ 1", {"v": pairs}, ""),
    ("Q is read of the first row of its 4", {"q": lambda q: q[:, :, torch.arange(q.shape[2]) // 4 * 4]}, ""),
    ("the channels of K are those of the other half of the channels", {"k": lambda k: k.roll(8, -1)}, "causal=top-left"),
    (
        "the channels of K beyond those of V are read of the key before, the first one's own",
        {"k": rest_of_key_before},
        SHARED,
    ),
    (
        "the channels of Q beyond those of V are read of the first query head of its group",
        {"q": rest_of_the_group},
        f"{SHARED} {GROUPS}",
    ),
    ("the channels of K beyond those of V are 2 times what they are", {"k": lambda k: torch.cat([k[..., :8], 2 * k[..., 8:]], -1)}, SHARED),
]  # fmt: skip


@pytest.mark.parametrize(("words", "tensors", "more"), OPERANDS, ids=[words for words, *_ in OPERANDS])
def test_an_operand_of_another_place_is_said(words, tensors, more):
    texts = [text.replace("dim_v=16 ", "dim_v=8 ") for text in SIZES] if SHARED in more else SIZES
    if GROUPS in more:
        texts, more = [text.replace("heads_q=2", GROUPS) for text in texts], SHARED
    found = operands_in_effect(*scenes(moved(**tensors), more, texts))

    assert [each.words for each in found] == [words]
    assert not found[0].part


def test_what_right_cases_contradict_is_said_of_failing_ones_alone():
    class WithoutCausal(Plain):
        def forward(self, problem):
            moved = problem if problem.causal else dataclasses.replace(problem, v=pairs(problem.v))
            return super().forward(moved)

    trials, found = scenes(WithoutCausal())
    assert not trials.scene(parse_case(TEXT + "causal=top-left")).failures
    said = operands_in_effect(trials, found)

    assert [(each.words, each.part) for each in said] == [("V is read of key j ^ 1, on the cases that fail", True)]


def test_an_operand_with_an_error_of_its_own_is_of_no_other_place():
    assert operands_in_effect(*scenes(moved(v=lambda v: pairs(v) * 1.01))) == []


class Reversed(Plain):
    """Parts of 16 keys, or as many parts as asked for, each weighed by the LSE of the part as far from the end."""

    supports = dataclasses.replace(Plain.supports, launch=(("n_splits", (2, 3)),))

    def forward(self, problem):
        self.parts = dict(problem.case.launch).get("n_splits", 2)
        return super().forward(problem)

    def output(self, o, z, v, lse):
        cuts = [z.shape[-1] * n // self.parts for n in range(self.parts + 1)]
        parts = [slice(a, b) for a, b in itertools.pairwise(cuts)]
        own = torch.stack([z[..., part].logsumexp(-1) for part in parts])
        weight = own.flip(0).softmax(0)
        outputs = torch.stack([z[..., part].softmax(-1) @ v[:, :, part] for part in parts])
        return (weight.unsqueeze(-1) * outputs).sum(0)


def test_parts_that_have_the_weight_of_others_are_told_from_inverse_weights_by_a_third_part():
    trials = Trials(Reversed(), 300)
    scene = trials.scene(parse_case(TEXT.replace("seq_k=9", "seq_k=24")))
    found = scenes_of(trials, scene, frozenset(FORWARD))

    assert any(each.case.launch == (("n_splits", 3),) for each in found)
    said = weights_in_effect(trials, found)
    assert [each.words for each in said] == ["partial results are weighed by the LSE of the part as far from the end"]


def sign_lost(self, z, cap):
    capped = Plain.cap(self, z, cap)
    return torch.where(z < -cap / 2, -capped, capped)


def test_products_that_are_wrong_by_their_value_are_said():
    said = weights_in_effect(*scenes(planted(cap=sign_lost), "softcap=2"))

    assert [each.words for each in said] == ["scaled products below -half the cap count with the other sign"]


class SinkTwice(Plain):
    """The sink counts twice in rows whose largest logit is below it."""

    def forward(self, problem):
        self.sink = problem.sink.double().view(1, -1, 1)
        return super().forward(problem)

    def output(self, o, z, v, lse):
        self.whole = torch.where(z.amax(-1) < self.sink, torch.logaddexp(lse, self.sink), lse)
        return o * (lse - self.whole).exp().unsqueeze(-1)

    def lse(self, lse, without_sink):
        return self.whole


def test_a_row_sum_that_is_wrong_in_some_rows_is_said_with_these():
    heads = [text.replace("heads_q=2 heads_kv=2", "heads_q=8 heads_kv=8") for text in SIZES]
    said = weights_in_effect(*scenes(SinkTwice(), "sink=yes scale=0.1", heads))

    assert [each.words for each in said] == [
        "the row sum that O is divided by counts the sink twice, in rows whose sink is above their largest logit; that of the others is as declared"
    ]


def of_eight(self, problem):
    found = Plain.distance(self, problem)
    row = torch.arange(found.shape[1])
    return found + (row - row // 8 * 8)[:, None]


def test_rows_that_share_a_position_are_said():
    said = weights_in_effect(*scenes(planted(distance=of_eight), "relative_bias=8,20,both"))

    assert [each.words for each in said] == ["the relative bias takes the position of the first row of its 8 for the row's"]  # fmt: skip


def test_values_that_went_elsewhere_are_said_beside_elements_that_nobody_wrote():
    class Stored(Plain):
        def forward(self, problem):
            found = super().forward(problem)
            lse = torch.full_like(found.lse, torch.nan)
            lse[:, ::2] = found.lse[:, 1::2]
            return dataclasses.replace(found, lse=lse)

    trials, found = scenes(Stored())

    said = values_elsewhere(trials, found[-1], "lse")
    assert said[0] == "Every wrong element of lse that is not NaN holds the exact value of head h + 1."


def test_a_single_key_does_not_show_the_scale():
    def first_key(self, see):
        return see & (torch.arange(see.shape[-1]) == 0)

    trials, found = scenes(planted(drop_keys=first_key))

    assert not any("scale" in each.words for each in unread_inputs(trials, found[-1]))


def test_tiles_that_do_not_rescale_are_said():
    longer = [
        text.replace(f"seq_k={2 * n + 5}", f"seq_k={2 * n + 45}") for n, text in zip((6, 9, 18), SIZES, strict=True)
    ]
    change = online(lambda step, _steps, alpha, _growth: (torch.ones_like(alpha) if step >= 2 else alpha, alpha))
    said = weights_in_effect(*scenes(planted(**change), "", longer))

    assert said[0].words == "O is not rescaled from tile 2 of 16 keys on, counted from 0"
