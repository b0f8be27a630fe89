"""Where no semantics is named, the masks and the weights in effect are read off the kernel, and nothing is said that fresh cases refute."""

import dataclasses
import math

import pytest
import torch

import flashverify.diagnosis.diagnose as diagnosing
from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis import arbitration
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.weights.effect import effect_of
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.online import online
from tests.diagnosis.planted import Plain, planted

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 "
FORWARD = CASE + "backward=no "
LONG = "fv1 seq_q=20 seq_k=70 dim_qk=16 dim_v=16 dtype=fp32 backward=no "
HEADS = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=18 seq_k=40 dim_qk=16 dim_v=16 dtype=fp32 backward=no "


def read(subject, text):
    trials = Trials(subject, 300)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    return readings(trials, scene, next(iter(scene.failures)))


def weighed(change):
    """O and its LSE from logits that `change` makes of the declared ones."""

    def output(self, o, z, v, lse):
        changed = change(self, z)
        self.changed = changed.logsumexp(-1)
        return (changed - self.changed.unsqueeze(-1)).exp().nan_to_num(0.0) @ v

    return {"output": output, "lse": lambda self, lse, _: self.changed}


def divided(by):
    """O divided by another row sum, whose logarithm is `by` of the subject, the logits and the LSE."""
    return {"output": lambda self, o, z, v, lse: o * (lse - by(self, z, lse)).exp().unsqueeze(-1)}


def key(z):
    return torch.arange(z.shape[-1])


def window_of_whole_tiles(self, i, j, left, right):
    first = (i - (1 << 30 if left is None else left)).clamp(min=0) // 16 * 16
    return (j >= first) & (j <= i + (1 << 30 if right is None else right))


def moved(**tensors):
    """The forward of a problem of which some tensors lie elsewhere."""

    class Moved(Plain):
        def forward(self, problem):
            changed = {name: move(getattr(problem, name)) for name, move in tensors.items()}
            return super().forward(dataclasses.replace(problem, **changed))

    return Moved()


def of_head_modulo(self, h, group, heads_kv):
    return h % heads_kv


MASKS = [
    (
        FORWARD.replace("seq_q=5 seq_k=7", "seq_q=40 seq_k=40") + "causal=top-left window=3,*",
        planted(window=window_of_whole_tiles),
        ("O sees keys before the window, back to the start of their tile of 16",),
    ),
    (
        LONG,
        planted(drop_keys=lambda s, see: see & (torch.arange(see.shape[3]) % 16 != 15)),
        ("O misses the last key of each tile of 16",),
    ),
    (
        HEADS,
        planted(
            **weighed(lambda s, z: z + math.log(2) * ((key(z) == 0) & (torch.arange(z.shape[1])[:, None, None] >= 1)))
        ),
        ("O counts more than once the first key, only in query heads behind the first one",),
    ),
    (
        LONG,
        planted(drop_keys=lambda s, see: see & (torch.arange(see.shape[3]) < see.shape[3] * 2 // 3)),
        ("O misses the keys of piece 3 of 3 equal pieces",),
    ),
    (HEADS, moved(v=lambda v: v.roll(-1, 1)), ("O reads V of the next kv head, for query head h",)),
]
WEIGHTS = [
    (
        FORWARD + "causal=top-left",
        planted(**divided(lambda s, z, lse: torch.logaddexp(lse, (~torch.isfinite(z)).sum(-1).double().log()))),
        ("The row sum that O is divided by takes in hidden keys with the logit 0", "The LSE is as declared"),
    ),
    (
        LONG,
        planted(**weighed(lambda s, z: z - math.log(2) * ((key(z) >= 16) & (key(z) < 32)))),
        ("O weighs keys 0.5 times as much as the other keys of the row, for keys 16 to 31",),
    ),
    (FORWARD + "bias=full", planted(add_bias=lambda s, z, b: z + b / 2), ("The logits in effect hold half the bias",)),
    (
        FORWARD + "bias=full",
        planted(add_bias=lambda s, z, b: 1.3 * z + b / 2),
        ("The logits in effect hold 1.3 times the scaled dot product and hold half the bias",),
    ),
    (
        LONG,
        moved(k=lambda k: k.roll(1, 2)),
        ("Each key's V has the logit of the key before",),
    ),
    (
        HEADS,
        moved(q=lambda q: q[:, :, torch.arange(q.shape[2]) // 16 * 16]),
        ("Each row of O has the weights of the first row of the tile of 16 rows",),
    ),
    (
        LONG + "regime=ascending",
        planted(**online(lambda step, steps, alpha, growth: (alpha ** (2 if step == steps - 1 else 1), alpha))),
        (
            "The part of O of the keys before the last tile of 16 that a row sees is rescaled once too often, by exp(their"
            " largest logit - the row's)",
            "The row sum that O is divided by is that of the declared weights",
        ),
    ),
    (
        LONG,
        planted(**weighed(lambda s, z: torch.where(key(z) >= z.shape[-1] // 16 * 16, 4 * z, z))),
        (
            "The logits in effect hold 4 times the scaled dot product, for a row's keys in a last tile of 16 that it does not"
            " see to its end",
        ),
    ),
    pytest.param(
        FORWARD + "sink=yes",
        planted(sinks=lambda s, sinks: sinks / 2),
        ("The sink in effect is 0.5 times the declared one",),
        marks=pytest.mark.thorough,
    ),
    (
        HEADS + "dropout=0.25",
        planted(kept=lambda s, p, keep: keep[:, :1].expand_as(keep)),
        ("Dropout has the draws of the first head",),
    ),
    pytest.param(
        FORWARD,
        planted(lse=lambda s, lse, _: 0.7 * lse + 0.1),
        ("The LSE is 0.7 times the row's largest logit + 0.7 times the logarithm of the row sum relative to it + 0.1",),
        marks=pytest.mark.thorough,
    ),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("text", "subject", "sentences"), [*MASKS, *WEIGHTS])
def test_what_is_in_effect_is_said_and_was_tested(text, subject, sentences):
    found = read(subject, text)

    assert found.sentences == sentences
    assert "failing cases of several seeds and sizes" in found.evidence


def test_a_right_kernel_gives_no_reading():
    trials = Trials(Plain(), 300)
    scene = trials.scene(parse_case(HEADS + "causal=top-left bias=full sink=yes dropout=0.25"))

    assert effect_of(trials, scene).right
    assert readings(trials, scene, "o").sentences == ()


@pytest.mark.parametrize("size", [pytest.param("seq_k", marks=pytest.mark.thorough), "seed"])
def test_a_factor_that_fresh_cases_refute_is_not_said(size):
    class OfTheCase(Plain):
        def add_bias(self, z, bias):
            return z + self.factor * bias

        def forward(self, problem):
            case = problem.case
            self.factor = 0.5 + 0.01 * (case.seq_k if size == "seq_k" else case.values.seed)
            return super().forward(problem)

    said = " ".join(read(OfTheCase(), FORWARD + "bias=full").sentences)

    assert "the bias" not in said


@pytest.mark.thorough
def test_a_set_of_keys_that_fresh_cases_refute_is_not_said():
    class DropsByLength(Plain):
        def drop_keys(self, see):
            return see & (torch.arange(see.shape[3]) != (see.shape[3] * 37) % 11 % see.shape[3])

    found = read(DropsByLength(), LONG)

    (sentence,) = found.sentences
    assert sentence.startswith("O misses keys that the mask shows, and no hidden key enters")


def test_a_diagnosis_without_a_name_says_the_reading_first(monkeypatch):
    for name in ("named", "named_at_places", "precision_words"):
        monkeypatch.setattr(diagnosing, name, lambda *_: None)
    text, subject, sentences = WEIGHTS[2]
    case = parse_case(text)
    verdict = next(v for v in judge_case(subject, case, Plan.only("accuracy", case)).failures)
    found = diagnose(subject, case, verdict, seconds=300)

    assert (found.name, found.reading) == ("", f"{sentences[0]}.")
    assert found.sentence.startswith(f"{sentences[0]}. ")
    assert "No known wrong semantics" not in found.sentence
    assert found.evidence.startswith("Each reading holds on at least ")


def test_the_description_stands_where_a_reading_raises(monkeypatch, capsys):
    for name in ("named", "named_at_places", "precision_words"):
        monkeypatch.setattr(diagnosing, name, lambda *_: None)
    monkeypatch.setattr(arbitration, "readings", lambda *_: 1 / 0)
    text, subject, _ = WEIGHTS[2]
    case = parse_case(text)
    verdict = next(v for v in judge_case(subject, case, Plan.only("accuracy", case)).failures)
    found = diagnose(subject, case, verdict, seconds=10)

    assert "related cases fail" in found.sentence
    assert "reading failed: ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(("factor", "said"), [(1 + 2.0**-13, False), (1.5, True)], ids=["precision", "values"])
def test_weights_are_called_right_only_where_v_is_wrong_by_more_than_they_may_be(factor, said):
    """A factor of O that shows with V one-hot too, within what is taken for rounding, and one of large values of V alone."""

    def output(self, o, z, v, lse):
        if not said:
            return o * factor
        return torch.softmax(z, -1) @ (v * torch.where(v.abs() > 1.2, factor, 1.0))

    found = read(
        type("Planted", (Plain,), {"output": output})(),
        "fv1 seq_q=9 seq_k=33 dim_qk=16 dim_v=16 dtype=fp32 backward=no",
    )

    assert any("not in the weights" in each for each in found.sentences) == said
