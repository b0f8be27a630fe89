"""Keys, rows, channels and lanes that are read or merged otherwise, learned from the weights in effect of one case."""

import dataclasses
from pathlib import Path

import pytest
import torch

import flashverify
from flashverify.case.text import parse_case
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.readings.masks.bits import masks_of_other_bits
from flashverify.diagnosis.readings.masks.extents import visible_extents
from flashverify.diagnosis.readings.masks.key_maps import page_maps
from flashverify.diagnosis.readings.piecewise_forms import pieces_within
from flashverify.diagnosis.readings.weights.effect import declared_effect
from flashverify.diagnosis.readings.weights.masses import masses
from tests.diagnosis.planted import Plain, planted
from tests.diagnosis.test_learned_readings import NARROW, read

FORWARD = "fv1 heads_q=2 heads_kv=2 seq_q=14 seq_k=33 dim_qk=16 dim_v=16 dtype=fp32 backward=no "


class OddKeysSwizzled(Plain):
    """Groups of eight channels of every second key are exchanged in pairs, in the products alone."""

    def forward(self, problem):
        other = problem.k[..., torch.arange(problem.k.shape[3]) ^ 8]
        odd = torch.arange(problem.k.shape[2])[:, None] % 2 == 1
        return super().forward(dataclasses.replace(problem, k=torch.where(odd, other, problem.k)))


def merged(share):
    """O of two halves of the keys, the second one joined by `share` of its LSE, that of the first and of both."""

    def output(self, o, z, v, lse):
        half = z.shape[-1] // 2
        if not half:
            return o
        parts = [z[..., :half], z[..., half:]]
        first, second = (x.logsumexp(-1, keepdim=True) for x in parts)
        a, b = (x.softmax(-1) @ y for x, y in zip(parts, (v[:, :, :half], v[:, :, half:]), strict=True))
        s = share(second, first, torch.logaddexp(first, second))
        return a + s * (b - a)

    return planted(output=output)


@pytest.mark.parametrize(
    ("subject", "text", "sentence"),
    [
        (
            planted(add_bias=lambda s, z, x: z + x[..., late(torch.arange(x.shape[3]), 8)]),
            FORWARD + "bias=shared",
            "The bias is that of key j - 8, at least 0 where j >= 8",
        ),
        (
            OddKeysSwizzled(),
            FORWARD,
            "The channels of K in the dot product are those of channel c ^ 8, for every second key from the second one on",
        ),
        (
            merged(lambda new, old, both: torch.sigmoid(new - both)),
            FORWARD,
            "The share of a further piece is the logistic function of its LSE less that of all pieces so far with it, not of those before it",
        ),
    ],
)
def test_what_is_taken_elsewhere_is_read(subject, text, sentence):
    assert sentence in read(subject, text)


def test_the_probability_to_drop_that_is_taken_for_one_to_keep_is_a_row_sum():
    effect = declared_effect(look(Plain(), parse_case(NARROW + "dropout=0.25")))
    words = "is multiplied by p / (1 - p), as if a pair were kept with the probability p"
    logits = effect.logits.masked_fill(~effect.visible, -torch.inf)

    assert torch.allclose(dict(masses(effect))[words](effect, logits).exp(), logits.logsumexp(-1).exp() / 3)


def late(x, by):
    return torch.where(x >= by, x - by, x)


@pytest.mark.parametrize(
    ("to", "words"),
    [
        (lambda x: late(x, 16), "{} - 16, at least 0 where {} >= 16"),
        (lambda x: torch.where(x % 2 == 1, x - 1, x), None),
        (lambda x: torch.where(x // 16 % 2 == 1, x - 16, x), "{} - 16, at least 0 where {} // 16 is odd"),
        (lambda x: torch.where(x < 5, 0 * x, x), None),
    ],
)
def test_functions_of_some_numbers_are_learned(to, words):
    numbers = torch.arange(40)
    found = to(numbers).unsqueeze(1) == numbers
    forms = list(pieces_within(found, torch.ones(40, dtype=torch.bool), 3))

    assert all(torch.equal(form.of(numbers), to(numbers)) for form in forms)
    assert forms
    assert words is None or words in [form.words for form in forms]


def test_a_function_of_all_numbers_is_none_of_some():
    numbers = torch.arange(12)
    shifted = (numbers + 3).clamp(max=11).unsqueeze(1) == numbers

    assert not list(pieces_within(torch.eye(12, dtype=torch.bool), torch.ones(12, dtype=torch.bool), 3))
    assert not [
        f for f in pieces_within(shifted, torch.ones(12, dtype=torch.bool), 3) if "%" in f.words.split(" where ")[1]
    ]


def test_lanes_are_sets_of_keys():
    scene = look(Plain(), parse_case("fv1 seq_q=3 seq_k=40 dim_qk=8 dim_v=8 dtype=fp32 backward=no"))
    wrong = torch.zeros(1, 1, 3, 40, dtype=torch.bool)
    wrong[..., [9, 13, 29]] = True
    sets = {each.words: each.where(scene).expand_as(wrong)[0, 0, 0].tolist() for each in visible_extents(scene, wrong)}

    assert sets["every second key from the second one on"] == [j % 2 == 1 for j in range(40)]
    assert sets["the second key of each 4"] == [j % 4 == 1 for j in range(40)]
    assert sets["keys from place 9 of their tile of 16 on"] == [j % 16 >= 9 for j in range(40)]
    assert sets["the first 14 keys of each tile of 16"] == [j % 16 < 14 for j in range(40)]


def test_words_of_bits_that_are_exchanged_are_a_mask():
    scene = look(Plain(), parse_case(FORWARD.replace("seq_k=33", "seq_k=64") + "bitmap=128,3"))
    mask = dict(masks_of_other_bits())[
        "the mask that takes for bit b of a word bit b of the other word of its pair, words 2n and 2n + 1"
    ]
    see = scene.inputs.visible.expand(1, 2, 14, 64)

    assert torch.equal(mask(scene).expand_as(see), torch.cat((see[..., 32:], see[..., :32]), -1))


def test_a_page_table_of_few_entries_and_a_page_for_a_tile_are_maps_of_keys():
    maps, j = dict(page_maps()), torch.arange(40)

    assert maps["page number n of a sequence is taken for n % 4"](j, 40, 4).tolist() == [x % 16 for x in range(40)]
    assert maps["page number n of a sequence is taken for min(n, 3)"](j, 40, 4)[16:20].tolist() == [12, 13, 14, 15]
    tile = maps["key j is read from the page of the first key of its tile of 16"](j, 40, 4).tolist()
    assert tile == [x // 16 * 16 + x % 4 for x in range(40)]


def test_nothing_imports_sympy_on_its_way():
    folder = Path(flashverify.__file__).parent

    assert not [f for f in folder.rglob("*.py") if "torch.unravel_index(" in f.read_text(encoding="utf-8")]
