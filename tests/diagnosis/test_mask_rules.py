"""Rules of the masks in effect by what kernels walk and store: tiles, packed rows, lists, words of bits, pages, splits."""

import dataclasses

import pytest
import torch

from flashverify.case.masks.selection_lists import lists_array, named_tensor
from flashverify.case.sections import Storage
from flashverify.case.selections import Selections
from flashverify.case.text import parse_case
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.masks.key_maps import counts_of_other_keys
from flashverify.diagnosis.readings.masks.splits import by_splits
from flashverify.diagnosis.trials import Trials
from flashverify.subjects.interface import Supports
from tests.diagnosis.planted import Plain, planted

FORWARD = "fv1 seq_q=3 seq_k=33 dim_qk=16 dim_v=16 dtype=fp32 backward=no "
CAUSAL = "fv1 seq_q=40 seq_k=40 dim_qk=16 dim_v=16 dtype=fp32 backward=no causal=top-left "
GROUPS = "fv1 heads_q=2 seq_q=20 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 backward=no "


def read(subject, text, seconds=300):
    trials = Trials(subject, seconds)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    return readings(trials, scene, "o")


def places(see):
    i, j = torch.arange(see.shape[2])[:, None], torch.arange(see.shape[3])
    return i, j, see.shape[3]


def last_of_several_whole_tiles(self, see):
    _, j, keys = places(see)
    return see & ~((j // 16 == keys // 16 - 1) & (keys // 16 >= 2))


def last_tile_of_one_key(self, see):
    _, j, keys = places(see)
    return see & ~((j == keys - 1) & (keys % 16 == 1))


def diagonal_in_the_last_step(self, see):
    i, j, keys = places(see)
    last = (i // 32 * 32 + 31).clamp(max=min(see.shape[2], keys) - 1) // 16
    return see | (j // 16 < last)


def packed_rows_behind_the_first_tile(self, see):
    group = 1 if see.shape[1] == 1 else see.shape[1] // self.kv_heads
    member = torch.arange(see.shape[1])[:, None, None] % group
    return see & (places(see)[0] * group + member < 16)


class Grouped(Plain):
    """Knows the number of kv heads."""

    drop_keys = packed_rows_behind_the_first_tile

    def forward(self, problem):
        self.kv_heads = problem.case.heads_kv
        return super().forward(problem)


class Listed(Plain):
    """Lists that end at their first -1."""

    supports = Supports(masks=("selection",), selections=Selections(rows=(1, 2), keys=(1, 4)), backward=False)

    def forward(self, problem):
        case, lists = problem.case, torch.from_numpy(lists_array(problem.case).copy())
        ended = lists.masked_fill((lists < 0).cumsum(-1) > 0, -1)
        blocks = torch.arange(-(-case.seq_k // case.mask.selection.keys))
        named = (ended[..., None] == blocks).any(-2).repeat_interleave(case.heads_q // case.heads_kv, 1)
        named = named.expand(*named.shape[:2], *named_tensor(case, "cpu").shape[2:])
        self.named = named[:, :, torch.arange(case.seq_q) // case.mask.selection.rows]
        self.named = self.named[..., torch.arange(case.seq_k) // case.mask.selection.keys]
        return super().forward(problem)

    def drop_keys(self, see):
        return see & self.named


def bits_of_half_words(self, problem, bits):
    key = torch.arange(bits.shape[-1])
    return bits[..., key // 32 * 32 + key % 16]


RULES = {
    "last of several whole tiles": (
        FORWARD,
        planted(drop_keys=last_of_several_whole_tiles),
        "O misses every key in the last of two or more whole tiles of 16 keys that every row of the sequence sees",
    ),
    "last tile of one key": (
        FORWARD,
        planted(drop_keys=last_tile_of_one_key),
        "O misses the last tile of 16 of the keys, where one key of it is left",
    ),
    "diagonal in the last step": (
        CAUSAL,
        planted(drop_keys=diagonal_in_the_last_step),
        "O sees keys behind the diagonal, in every tile of 16 keys but the last that a row of the tile of 32 rows sees",
    ),
    "packed rows": (GROUPS, Grouped(), "O misses every key in packed rows (row * group + member) behind the first 16"),
    "words": (
        "fv1 seq_q=5 seq_k=50 dim_qk=16 dim_v=16 dtype=fp32 backward=no bitmap=128,3",
        planted(pattern=bits_of_half_words),
        "O has the mask that takes for bit b of a word bit b % 16 of its word",
    ),
    "lists": (
        "fv1 seq_q=6 seq_k=40 dim_qk=16 dim_v=16 dtype=fp32 backward=no selected=6,1,4,160,1,0,1,1",
        Listed(),
        "O misses every key in blocks that stand behind a -1 in their list",
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_by_what_a_kernel_walks_is_said(name):
    text, subject, sentence = RULES[name]

    found = read(subject, text)

    assert found.sentences[0] == sentence
    assert found.tested


def test_what_holds_on_every_case_is_said_where_no_rule_is_found():
    class DropsByLength(Plain):
        def drop_keys(self, see):
            return see & (torch.arange(see.shape[3]) != see.shape[3] * 37 % 11)

    (sentence,) = read(DropsByLength(), FORWARD).sentences

    assert sentence.startswith("O misses keys that the mask shows, and no hidden key enters")


@pytest.mark.thorough
def test_a_hidden_key_that_enters_on_one_case_is_said():
    class Either(Plain):
        def drop_keys(self, see):
            _, j, keys = places(see)
            return see & (j != keys * 37 % 11) if keys % 2 else see | (j == keys * 37 % 11)

    sentences = read(Either(), CAUSAL.replace("seq_k=40", "seq_k=41"), 3).sentences

    assert not any("no hidden key enters" in each or "misses none" in each for each in sentences)


def test_pages_counted_from_a_part_give_the_counts_of_a_loop():
    case = parse_case("fv1 seq_q=1 seq_k=21 dim_qk=8 dim_v=8 dtype=fp32 backward=no page_size=4 launch=parts:2")
    scene = Trials(Plain(), 300).scene(dataclasses.replace(case, storage=Storage(), launch=()))
    scene = dataclasses.replace(scene, problem=dataclasses.replace(scene.problem, case=case))
    counted = dict(counts_of_other_keys())
    words = next(each for each in counted if each.startswith("the page of key j is counted from the page"))
    expected = [0] * 21
    for key in range(21):
        first = 10 if key >= 10 else 0
        expected[(first // 4 + (key - first) // 4) * 4 + key % 4] += 1

    assert counted[words](scene)[0, 0, 0].tolist() == expected
    assert expected != [1] * 21


def test_splits_behind_an_empty_one_are_those_of_a_loop():
    text = "fv1 seq_q=1 seq_k=70 dim_qk=8 dim_v=8 dtype=fp32 backward=no bitmap=128,3 launch=n_splits:3"
    case = parse_case(text)
    scene = Trials(Plain(), 300).scene(dataclasses.replace(case, launch=()))
    see = scene.inputs.visible.clone().expand(1, 1, 1, 70)
    see = see & ~((torch.arange(70) >= 16) & (torch.arange(70) < 48))
    inputs = dataclasses.replace(scene.inputs, visible=see)
    problem = dataclasses.replace(scene.problem, case=case)
    scene = dataclasses.replace(scene, inputs=inputs, problem=problem, memo={})
    words = "the splits (by tiles of 16 keys) behind the first one in which the row sees no key"
    (extent,) = [each for each in by_splits(scene) if each.words == words]
    begins = [5 * split // 3 * 16 for split in range(4)]
    empty = next(split for split in range(3) if not see[..., begins[split] : begins[split + 1]].any())

    assert empty == 1
    assert torch.equal(extent.where(scene), see & (torch.arange(70) >= begins[empty + 1]))
