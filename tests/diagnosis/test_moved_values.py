"""What a reading says of V where the weights are right: channels and keys in another order, a mean that is missing; and of an LSE without a mean of K."""

import dataclasses
import math

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.moved_channels import channels_in_effect
from flashverify.diagnosis.readings.weights.effect import effect_of
from flashverify.diagnosis.readings.weights.gone_rows import which_are_gone
from flashverify.diagnosis.readings.weights.lse_in_effect import Row
from flashverify.diagnosis.readings.weights.models import DECLARED, row_shift
from flashverify.diagnosis.readings.weights.row_factors import factors_depend
from flashverify.diagnosis.trials import Trials
from flashverify.subjects.interface import Forward
from tests.diagnosis.planted import Plain, planted

NARROW = "fv1 heads_q=2 heads_kv=2 seq_q=5 seq_k=40 dim_qk=16 dim_v=16 dtype=fp32 backward=no "
FRAGMENTS = torch.tensor([0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15])


def of_keys(to):
    """V of other keys, by their numbers."""

    def output(self, o, z, v, lse):
        p = (z - lse.unsqueeze(-1)).exp().nan_to_num(0.0)
        return p @ v[:, :, to(torch.arange(v.shape[2]))]

    return {"output": output}


def in_groups(j):
    whole = len(j) // 16 * 16
    return torch.where(j < whole, j // 16 * 16 + FRAGMENTS[j % 16], j)


def tile_before(j):
    return torch.where(j // 16 % 2 == 1, j - 16, j)


def of_channels(change):
    return {"output": lambda s, o, z, v, lse: change(o)}


def first_tile(o):
    """Every tile of 8 channels is stored over the first one; the others are not written."""
    found = torch.full_like(o, torch.nan)
    for c in range(0, o.shape[-1], 8):
        found[..., :8] = o[..., c : c + 8]
    return found if o.shape[-1] > 8 else o


class WithoutMean(Plain):
    """K is taken without its mean over the keys, which the LSE would need."""

    def forward(self, problem):
        found = super().forward(problem)
        mean = (
            problem.k.double().mean(2, keepdim=True).repeat_interleave(problem.case.heads_q // problem.case.heads_kv, 1)
        )
        lacks = self.scale(problem) * (problem.q.double() * mean).sum(-1)
        return Forward(found.o, (found.lse - lacks).float(), found.saved)


class LogOfKeys(Plain):
    """Logits that grow with the logarithm of the number of keys."""

    def scale(self, problem):
        return problem.scale * math.log(problem.case.seq_k) / math.log(64)


def heads_of_two(self, o, z, v, lse):
    """No program computes the third query head and those behind it."""
    return torch.where((torch.arange(o.shape[1]) < 2)[:, None, None], o, 0.0)


def lse_of_two(self, lse, without_sink):
    return torch.where((torch.arange(lse.shape[1]) < 2)[:, None], lse, -torch.inf)


READ = [
    (
        of_keys(in_groups),
        "V is read of the key at place 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15 of its 16",
    ),
    (of_keys(tile_before), "V is read of the key 16 before in every second tile of 16 keys"),
    (of_keys(lambda j: (j - 3).clamp(min=0)), "V is read of key j - 3, at least 0"),
    (
        of_channels(lambda o: o.unflatten(-1, (-1, 8)).mT.flatten(-2)),
        "The channels of O are those of the layout",
    ),
    (
        of_channels(first_tile),
        "Each tile of 8 channels of O is stored over the first one; channels from 8 on are never written",
    ),
    (of_channels(lambda o: o.flip(-1)), "The channels of O are those of the channels in reverse order"),
    (
        {"output": lambda s, o, z, v, lse: o - v.mean(2, keepdim=True)},
        "O lacks the mean of V over all keys of the sequence",
    ),
]


def read(subject, text):
    trials = Trials(subject, 300)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    return readings(trials, scene, next(iter(scene.failures))).sentences


def said(found, words):
    return any(each.startswith(words) for each in found)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("defect", "words"), [pytest.param(*x, id=x[1][:60]) for x in READ])
def test_where_v_is_read_is_said(defect, words):
    lengths = type("Full", (Plain,), defect)
    found = read(lengths(), NARROW)

    assert said(found, words), found


@pytest.mark.thorough
def test_a_factor_of_each_row_is_said_by_what_it_depends_on():
    found = read(LogOfKeys(), NARROW)

    assert said(found, "The scaled products are multiplied by 0.2404 times the logarithm of the number of keys"), found


@pytest.mark.parametrize(("right", "part"), [(False, False), (True, True)])
def test_an_order_of_channels_that_right_cases_bear_is_said_of_all(right, part):
    class ReversedOfManyKeys(Plain):
        def forward(self, problem):
            found = super().forward(problem)
            return found if problem.case.seq_k < 12 else dataclasses.replace(found, o=found.o.flip(-1))

    trials = Trials(ReversedOfManyKeys(), 300)
    scenes = [
        trials.scene(parse_case(NARROW.replace("seq_k=40", f"seq_k={keys}") + f"seed={keys}")) for keys in (20, 40, 33)
    ]
    if right:
        assert not trials.scene(parse_case(NARROW.replace("seq_k=40", "seq_k=9"))).failures
    (said,) = channels_in_effect(trials, scenes)

    assert said.words.startswith("the channels of O are those of the channels in reverse order")
    assert (said.part, said.words.endswith(", on the cases that fail")) == (part, part)


class ScaleOfSeed(Plain):
    """Logits that have another factor in each case, whatever its sizes are."""

    def scale(self, problem):
        return problem.scale * (1 + (problem.case.values.seed % 5 + 1) / 7)


class ScaleOfHead(Plain):
    """Logits that have another factor in each query head."""

    def scale(self, problem):
        return problem.scale * torch.tensor([1.0, 1.3, 0.7]).view(1, -1, 1, 1)


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (ScaleOfSeed(), []),
        (
            ScaleOfHead(),
            [
                "the scaled products are multiplied by a function of the query head alone: 1 at 0, 1.3 at 1, 0.7 at 2",
            ],
        ),
    ],
)
def test_a_factor_of_each_case_is_no_function_of_what_no_two_cases_share(subject, words):
    trials = Trials(subject, 300)
    sizes = ((5, 40), (8, 47), (11, 51), (12, 33))
    texts = (
        f"fv1 heads_q=3 heads_kv=3 seq_q={rows} seq_k={keys} dim_qk=16 dim_v=16 dtype=fp32 backward=no seed={keys}"
        for rows, keys in sizes
    )
    found = factors_depend([effect_of(trials, trials.scene(parse_case(text))) for text in texts])

    assert [each.words for each in found] == words


def test_rows_that_no_program_computes_are_told_by_their_place():
    trials = Trials(planted(output=heads_of_two, lse=lse_of_two), 300)
    texts = (NARROW.replace("heads_q=2 heads_kv=2", f"heads_q={heads} heads_kv={heads}") for heads in (3, 4, 6))
    effects = [effect_of(trials, trials.scene(parse_case(text))) for text in texts]
    rows = [Row(DECLARED, e, DECLARED.logits(e), row_shift(e, DECLARED).squeeze(-1)) for e in effects]

    assert which_are_gone(rows) == "only in query heads from 2 on"


def test_an_lse_without_the_mean_of_k_is_said():
    found = read(WithoutMean(), NARROW)

    assert said(found, "The LSE lacks the scaled product of the row's q with the mean of K"), found


@pytest.mark.thorough
def test_hidden_keys_in_o_alone_are_no_other_values():
    """The mask is wrong in O alone, and V is read where it should be."""

    def output(self, o, z, v, lse):
        return o + torch.where(torch.isinf(z), 0.1, 0.0).double() @ v

    found = read(planted(output=output), NARROW.replace("seq_q=5", "seq_q=40") + "causal=top-left")

    assert not any(word in each for each in found for word in ("V is read", "channels of O", "mean of V")), found
