"""Numbers and maps that a reading learns from one case: what distance, key, row or bit a kernel takes for another, and what limits its row sums."""

import dataclasses
import itertools
import math

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.index_forms import forms_within
from flashverify.diagnosis.readings.masks.bits import masks_of_learned_bits
from flashverify.diagnosis.readings.masks.extents import visible_extents
from flashverify.diagnosis.readings.masks.pattern_blocks import hidden_blocks
from flashverify.diagnosis.readings.masks.rules import Rule
from flashverify.diagnosis.readings.unread import unread_inputs
from flashverify.diagnosis.readings.weights.dependences import logits_depend
from flashverify.diagnosis.readings.weights.effect import declared_effect, effect_of
from flashverify.diagnosis.readings.weights.learned_draws import learned_draws
from flashverify.diagnosis.readings.weights.value_terms import roundest
from flashverify.diagnosis.related_cases import windows
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.explaining import explained
from tests.diagnosis.online import online
from tests.diagnosis.planted import Plain, planted

FORWARD = "fv1 heads_q=2 heads_kv=2 seq_q=14 seq_k=33 dim_qk=16 dim_v=16 dtype=fp32 backward=no "
NARROW = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 backward=no "


def read(subject, text, seconds=300):
    trials = Trials(subject, seconds)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    return readings(trials, scene, next(iter(scene.failures))).sentences


class NothingFar(Plain):
    """Distances beyond the reach of the table have no bias."""

    def table(self, table):
        return torch.nn.functional.pad(table, (0, 1))

    def buckets(self, problem):
        reach, count = len(problem.distance_buckets) // 2, problem.relative_bias.shape[1]
        distance = self.distance(problem)
        return torch.where(distance.abs() > reach, count, super().buckets(problem))


def at_least(limit):
    """O divided by a row sum that is at least `limit` times the row's largest weight."""

    def output(self, o, z, v, lse):
        own = (lse - z.amax(-1)).exp()
        return o * (own / own.clamp(min=limit)).unsqueeze(-1)

    return {"output": output}


def kept_share(self, problem):
    self.p = problem.case.dropout
    return problem.scale


def flat_below(z, cap):
    return torch.where(z.abs() < cap, z, cap * torch.tanh(z / cap))


READ = [
    (
        {"alibi": lambda s, distance: distance.abs().clamp(max=11)},
        FORWARD + "alibi=yes",
        "ALiBi takes the distance d for min(d, 11)",
    ),
    (
        {name: getattr(NothingFar, name) for name in ("table", "buckets")},
        FORWARD + "relative_bias=8,5,both",
        "The relative bias is 0 for distances beyond the reach of its table",
    ),
    (
        {"add_bias": lambda s, z, x: z + x[:, :, torch.arange(x.shape[2]) // 3 * 3]},
        FORWARD + "bias=shared",
        "The bias is that of row i // 3 * 3",
    ),
    (
        {"alibi_slopes": lambda s, slopes: slopes[torch.arange(len(slopes)) // 2 * 2]},
        FORWARD.replace("heads_q=2 heads_kv=2", "heads_q=4 heads_kv=4") + "alibi=yes",
        "ALiBi has the slope of the first query head of its pair",
    ),
    (
        at_least(1.5),
        NARROW + "causal=top-left",
        "The row sum that O is divided by is at least 1.5 times the row's largest weight",
    ),
    (
        {"scale": kept_share, "lse": lambda s, lse, _: lse + math.log1p(-s.p)},
        NARROW + "dropout=0.25",
        "The LSE is that of a row sum that is multiplied by 1 - p",
    ),
    (
        {"cap": lambda s, z, cap: flat_below(z, cap)},
        NARROW + "softcap=2 regime=normal",
        "Scaled products within the cap on both sides are not capped",
    ),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("defect", "text", "sentence"), [pytest.param(*x, id=x[2]) for x in READ])
def test_what_is_learned_is_said(defect, text, sentence):
    found = read(type("Planted", (NothingFar if "buckets" in defect else Plain,), defect)(), text)

    assert sentence in found


@pytest.mark.thorough
def test_errors_of_precision_are_no_row_sums():
    def output(self, o, z, v, lse):
        return o * (1 + 2e-3 * (torch.arange(o.shape[2]) % 3 - 1).unsqueeze(-1))

    assert not any("up to a factor" in each for each in read(planted(output=output), FORWARD))


def exchanged(x, size, places):
    """`x` at other numbers of its last axis, of which each group of `size` is permuted."""
    number = torch.arange(x.shape[-1])
    return x[..., number // size * size + torch.tensor(places)[number % size]]


def test_draws_of_other_keys_of_a_group_are_learned():
    effect = declared_effect(look(Plain(), parse_case(FORWARD.replace("seq_k=33", "seq_k=32") + "dropout=0.5")))
    share = (effect.logits - effect.scene.truth.exact_lse.unsqueeze(-1)).exp()
    kept = exchanged(effect.scene.inputs.keep.bool(), 4, [0, 2, 1, 3])
    found = dict(learned_draws(dataclasses.replace(effect, weights=share * kept * 2)))

    factor = found["the draws of key j, but of every 4, counted from 0, 2 for 1, 1 for 2"](effect)

    assert torch.equal(factor > 0, kept)


def test_draws_that_are_right_are_no_others():
    effect = declared_effect(look(Plain(), parse_case(FORWARD + "dropout=0.5")))

    assert not list(learned_draws(effect))


def test_bits_of_a_byte_in_reverse_are_learned():
    scene = look(Plain(), parse_case(FORWARD.replace("seq_k=33", "seq_k=64") + "bitmap=128,3"))
    see = scene.inputs.visible.expand(1, 2, 14, 64)
    effective = exchanged(see, 8, [7, 6, 5, 4, 3, 2, 1, 0])
    found = dict(masks_of_learned_bits(scene, effective, torch.ones_like(effective)))

    mask = found["the mask that takes for bit b of a word bit b // 8 * 8 + 7 - b % 8 of it"](scene)

    assert torch.equal(mask.expand_as(see), effective)
    assert not list(masks_of_learned_bits(scene, see, torch.ones_like(see)))


def test_a_map_that_no_simple_function_makes_is_none():
    numbers = torch.tensor([0, 3, 1, 7, 2, 6, 5, 4, 8, 9, 15, 11])
    found = numbers.unsqueeze(-1) == torch.arange(12)

    assert not list(forms_within(found, torch.ones(12, dtype=torch.bool), 5))


@pytest.mark.parametrize(("low", "high", "number"), [(0.97, 1.04, 1.0), (38.2, 41.0, 40.0), (0.4993, 0.5004, 0.5)])
def test_a_limit_between_two_numbers_is_the_roundest(low, high, number):
    assert roundest(low, high) == number


def unread(subject, texts):
    trials = Trials(subject, 300)
    scenes = [trials.scene(parse_case(text)) for text in texts]
    assert all(scene.failures for scene in scenes)
    return [each.words.partition(":")[0] for each in unread_inputs(trials, scenes[-1])]


CAUSAL = [
    f"fv1 seq_q={n} seq_k={n + 1} dim_qk=8 dim_v=8 dtype=fp32 causal=top-left seed={n} backward=no" for n in (4, 5, 7)
]
CAPPED = [text.replace("causal=top-left", "softcap=30") for text in CAUSAL]


def test_a_flag_that_whole_tiles_ask_for_is_no_unread_one():
    by_tiles = planted(causal=lambda s, i, j: j <= i // 64 * 64 + 63)
    never = planted(causal=lambda s, i, j: j <= i + 1000)

    assert unread(by_tiles, CAUSAL) == []
    assert unread(never, CAUSAL) == ["O and LSE do not depend on the causal flag"]


def test_a_function_that_is_the_identity_of_small_logits_is_no_unread_one():
    never = planted(cap=lambda s, z, cap: z)

    assert unread(planted(cap=lambda s, z, cap: flat_below(z, cap)), CAPPED) == []
    assert unread(never, CAPPED) == ["O and LSE do not depend on the softcap"]


def not_rescaled_as_the_first_row():
    """An online softmax over tiles of 16 keys that rescales a tile of 16 rows only if the maximum of the first of them grows."""

    def change(step, steps, alpha, growth):
        first = growth[..., torch.arange(growth.shape[2]) // 16 * 16, :]
        kept = torch.where(first > 0, alpha, 1.0)
        return kept, kept

    return planted(**online(change))


@pytest.mark.thorough
def test_rows_that_are_rescaled_together_are_read():
    found = read(not_rescaled_as_the_first_row(), FORWARD.replace("seq_q=14 seq_k=33", "seq_q=20 seq_k=70"))

    assert (
        "O is not rescaled at tiles of 16 keys at which the maximum of the first row of its tile of 16 rows does not grow"
        in found
    )


class HalfWritten(Plain):
    """LSE of the first row alone, which sees one key with or without a causal mask at the top left; the others keep a number."""

    def lse(self, lse, without_sink):
        return torch.where(torch.arange(lse.shape[-1]) == 0, lse, 7.0)


def test_what_is_never_written_depends_on_nothing_and_tells_of_no_flag():
    assert unread(HalfWritten(), CAUSAL) == []


class FlushedBelowHiddenKeys(Plain):
    """Weights beside a maximum over all keys of a tile of 16, those behind the last one with the logit 0; below 2^-126 they are 0."""

    def scale(self, problem):
        self.raw = problem.scale * (problem.q.double() @ problem.k.double().mT)
        return problem.scale

    def output(self, o, z, v, lse):
        start = self.raw.amax(-1, keepdim=True).clamp(min=0.0)
        w = (z - start).exp()
        w = torch.where(w < 2.0**-126, 0.0, w)
        total = w.sum(-1, keepdim=True)
        divisor = torch.where(total == 0, 1.0, total)
        self.found = (start + divisor.log()).squeeze(-1)
        return w @ v / divisor

    def lse(self, lse, without_sink):
        return self.found


def test_a_maximum_over_hidden_keys_is_explained():
    text = "fv1 seq_q=6 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32 causal=top-left regime=logits-1e3 backward=no"
    scene = look(FlushedBelowHiddenKeys(), parse_case(text))

    assert scene.failures
    assert explained("maximum-over-hidden-keys", scene)
    assert not any(
        each.name == "maximum-from-zero" and any(scene.agrees(x, frozenset(scene.failures)) for x in each.build(scene))
        for each in SEMANTICS
    )


def test_windows_of_usual_sides_are_asked_about():
    case = parse_case("fv1 seq_q=2 seq_k=129 dim_qk=8 dim_v=8 dtype=fp32 causal=bottom-right window=0,* backward=no")

    assert any(each.mask.window == (60, None) and each.seq_k > 200 for each in windows(case))


def test_the_first_keys_of_a_window_are_a_set():
    scene = look(Plain(), parse_case("fv1 seq_q=9 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32 window=3,1 backward=no"))
    wrong = torch.zeros(1, 1, 9, 9, dtype=torch.bool)
    wrong[0, 0, 5, 2] = wrong[0, 0, 5, 3] = True
    found = {each.words: each.where(scene) for each in visible_extents(scene, wrong)}
    first = found["the first 2 keys of the row's window, counted from its left edge"]

    for i, j in itertools.product(range(9), range(9)):
        assert first[0, 0, i, j] == (i - 3 <= j < i - 1)


PATTERN = "fv1 seq_q=40 seq_k=72 dim_qk=8 dim_v=8 dtype=fp32 blocks=16,16,128,4 backward=no"


def test_the_blocks_of_a_pattern_are_sets_of_pairs():
    scene = look(Plain(), parse_case(PATTERN))
    live = scene.problem.blocks.expand(1, 1, 3, 5)[0, 0]
    see = scene.inputs.visible.expand(1, 1, 40, 72)
    wrong = see & (torch.arange(72) >= 32)
    sets = {each.words: each.where(scene) for each in visible_extents(scene, wrong)}
    dead = {each.words: each.where(scene) for each in hidden_blocks(scene)}
    own = dead["keys of the block of the same number as the rows', where that is dead"]
    behind = next(where for words, where in sets.items() if "behind the first" in words and "in ascending" in words)
    least = min(int(live[i, : j + 1].sum()) - 1 for i in range(3) for j in (2, 3, 4) if live[i, j])

    for i, j in itertools.product(range(40), range(72)):
        a, b = i // 16, j // 16
        assert own.expand_as(see)[0, 0, i, j] == (a == b and not live[a, b])
        assert sets["the last key of each block"].expand_as(see)[0, 0, i, j] == (bool(live[a, b]) and j % 16 == 15)
        assert behind.expand_as(see)[0, 0, i, j] == (bool(live[a, b]) and int(live[a, :b].sum()) >= least)


def test_hidden_blocks_are_said_without_a_stray_comma():
    first = next(each for each in hidden_blocks(look(Plain(), parse_case(PATTERN))) if "first block" in each.words)

    assert Rule(first).words == "keys of the first block, where that is dead"
    assert Rule(first, within=first).words.startswith("keys of the first block, where that is dead, in ")


@pytest.mark.thorough
def test_sinks_that_are_another_function_are_said():
    found = read(planted(sinks=torch.sin), FORWARD.replace("heads_q=2 heads_kv=2", "heads_q=6 heads_kv=6") + "sink=yes")

    assert any(each.startswith("The sink in effect is a function of the declared one: ") for each in found)


def test_a_prefix_that_ends_early_is_read():
    text = FORWARD.replace("seq_q=14 seq_k=33", "seq_q=9 seq_k=40") + "causal=top-left prefix=30"
    found = read(planted(prefix=lambda s, j, lengths, batch: j < min(lengths[batch], 4)), text)

    assert any(each.startswith("O misses keys from ") and "that the prefix alone shows" in each for each in found)


def rational(z, cap):
    x = (z / cap).clamp(-3, 3)
    return cap * x * (27 + x * x) / (27 + 9 * x * x)


FUNCTIONS = [
    (
        {"cap": lambda s, z, cap: rational(z, cap)},
        "softcap=1",
        "the scaled product, both in units of the cap,",
    ),
    (
        {"alibi": lambda s, d: 3 * d.abs().sqrt() + d % 3},
        "alibi=yes",
        "the distance, in units of ALiBi's slope",
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("defect", "more", "words"), FUNCTIONS)
def test_what_wrong_logits_are_a_function_of_is_said(defect, more, words):
    found = read(planted(**defect), FORWARD.replace("heads_q=2 heads_kv=2", "heads_q=4 heads_kv=4") + more)

    assert found[0].startswith(f"The logits in effect are off by a function of {words} alone: ")


@pytest.mark.parametrize(("defect", "more", "words"), FUNCTIONS)
def test_a_function_that_wrong_logits_are_off_by_is_learned_of_two_cases(defect, more, words):
    texts = [
        FORWARD.replace("heads_q=2 heads_kv=2", "heads_q=4 heads_kv=4").replace("seq_q=", f"seed={seed} seq_q=") + more
        for seed in (1, 2)
    ]
    wrong, right = (
        [effect_of(trials, trials.scene(parse_case(text))) for text in texts]
        for trials in (Trials(planted(**defect), 300), Trials(Plain(), 300))
    )

    (said,) = logits_depend(wrong)
    assert said.words.startswith(f"the logits in effect are off by a function of {words} alone: ")
    assert logits_depend(right) == []


def test_logits_that_are_off_by_noise_depend_on_nothing():
    def cap(self, z, cap):
        return z + 0.3 * torch.randn(z.shape, generator=torch.Generator().manual_seed(z.numel()), dtype=z.dtype)

    assert not any("a function of" in each for each in read(planted(cap=cap), FORWARD + "softcap=1", 3))


def test_rows_whose_weights_have_one_factor_are_told_by_what_they_share():
    def output(self, o, z, v, lse):
        factor = torch.tensor([0.5, 0.7, 0.83, 0.91])[torch.arange(o.shape[1]) * 3 % 4]
        return o * factor.view(1, -1, 1, 1)

    found = read(planted(output=output), FORWARD.replace("heads_q=2 heads_kv=2", "heads_q=4 heads_kv=4"))

    assert any(
        "up to a factor of its own" in each and each.endswith("as much in all rows of one query head") for each in found
    )


def test_draws_of_other_streams_are_learned():
    text = FORWARD.replace("heads_q=2 heads_kv=2", "batch=2 heads_q=3 heads_kv=3") + "dropout=0.5"
    effect = declared_effect(look(Plain(), parse_case(text)))
    share = (effect.logits - effect.scene.truth.exact_lse.unsqueeze(-1)).exp()
    keep = effect.scene.inputs.keep.bool()
    kept = torch.stack([torch.stack([keep[0, (3 * b + h) % 2] for h in range(3)]) for b in range(2)])
    found = dict(learned_draws(dataclasses.replace(effect, weights=share * kept * 2)))

    factor = found["the draws of s % 2 for s = sequence * heads + head"](effect)

    assert torch.equal(factor > 0, kept)
