"""A name is kept only where it holds on cases that spread its mask over many tiles, with tiles of one size."""

from dataclasses import replace

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.naming import Named, named
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.readings.masks.in_effect import masks_in_effect
from flashverify.diagnosis.readings.masks.scenes import mask_scenes
from flashverify.diagnosis.stretching import stretched
from flashverify.diagnosis.trials import Trials, work
from flashverify.diagnosis.withstanding import withstood
from flashverify.subjects.interface import Supports
from tests.diagnosis import tile_defects
from tests.diagnosis.mask_defects import banded, keys_seen
from tests.diagnosis.planted import Plain, planted

CASE = "fv1 seq_q=2 seq_k=2 dim_qk=8 dim_v=8 dtype=fp32 backward=no "
TILED = CASE.replace("seq_k=2", "seq_k=20")
ANY = Supports(
    masks=("causal", "window", "key_lengths", "packed"), window_alignments=("top-left", "bottom-right"), dim_max=512
)


def of_the_first_row(i, j, left, right):
    """Every row has the left side of the first row of its tile of 64."""
    return Plain().window(i // 64 * 64, j, left, None) & Plain().window(i, j, None, right)


def of_the_tile(i, j, left, right):
    """The tile of 64 keys in which the window of the last row of a tile of 64 begins is not masked."""
    last = (i // 64 * 64 + 63).clamp(max=i.max()) - left
    return (j >= i - left) | ((j >= last.clamp(min=0) // 64 * 64) & (j < last))


def tail(size):
    """The keys behind the last whole tile are lost; the size of a tile by the number of keys."""
    return keys_seen(lambda key, keys: key < keys // size(keys) * size(keys))


def claim_of(name):
    return Claim(next(each for each in SEMANTICS if each.name == name))


def kept(subject, text, name):
    """Whether a name that explains the case is kept, and its claim."""
    trials = Trials(subject, 600.0)
    scene = trials.scene(parse_case(text))
    claim = claim_of(name)
    assert claim.answer(scene) is Answer.CLEAR
    return withstood(trials, scene, Named([claim])) is not None, claim


@pytest.mark.parametrize(("defect", "holds"), [(of_the_tile, True), (of_the_first_row, False)])
def test_an_edge_that_only_small_cases_take_for_a_tile_gets_no_name(defect, holds):
    subject = type("Wide", (Plain,), {"tile": 64, **banded(defect)})()

    assert kept(subject, CASE + "window=0,*", "edge-tile-unmasked")[0] is holds


def test_a_search_does_not_give_the_name():
    trials = Trials(type("Wide", (Plain,), {"tile": 64, **banded(of_the_first_row)})(), 600.0)

    found = named(trials, trials.scene(parse_case(CASE + "window=0,*")))

    assert found is None or "edge-tile-unmasked" not in {each.semantics.name for each in found.claims}


def test_masks_are_read_under_a_window_that_reaches_over_tiles_too():
    trials = Trials(type("Wide", (Plain,), {"tile": 64, **banded(of_the_first_row)})(), 600.0)
    scene = trials.scene(parse_case(CASE + "window=0,*"))
    read = mask_scenes(trials, scene, frozenset({"o"}))

    said = [each.words for each in masks_in_effect(trials, read)]

    assert said == ["O sees keys before the window, where another row of the tile of 64 rows sees them or keys beyond"]


def without_the_first_key(lost):
    """Rows lose the first key where `lost` (the mask, the numbers of rows) says so."""

    def drop_keys(self, see):
        first = torch.arange(see.shape[-1]) == 0
        return see & ~(first & lost(see, torch.arange(see.shape[-2])[:, None]))

    return planted(drop_keys=drop_keys)


@pytest.mark.parametrize(
    ("lost", "detail"),
    [
        (lambda see, row: ~tile_defects.whole(see), "only in tiles that need a mask"),
        (lambda see, row: row // 16 % 3 != 1, None),
    ],
)
def test_a_mask_that_is_wrong_where_it_is_asked_keeps_its_name(lost, detail):
    holds, claim = kept(without_the_first_key(lost), CASE + "window=0,*", "first-key-missing")

    assert (claim.detail if holds else None) == detail


@pytest.mark.parametrize(("size", "holds"), [(lambda keys: 16, True), (lambda keys: 16 if keys % 4 else 64, False)])
def test_tiles_that_have_another_size_on_each_case_give_no_name(size, holds):
    assert kept(planted(**tail(size)), TILED, "tail-keys-skipped")[0] is holds


def test_the_size_that_is_said_is_that_of_the_stretched_cases():
    holds, claim = kept(planted(**tail(lambda keys: 16 if keys < 40 else 64)), TILED, "tail-keys-skipped")

    assert (holds, claim.detail) == (True, "a tile of 64 keys")


def test_a_name_that_many_tiles_show_to_be_right_is_dropped():
    small = keys_seen(lambda key, keys: (key < keys // 16 * 16) | (keys > 100))

    assert not kept(planted(**small), TILED, "tail-keys-skipped")[0]


def test_a_semantics_that_has_no_say_on_large_cases_is_not_asked_about_them():
    trials = Trials(planted(scale=lambda s, p: 1.0), 600.0)
    scene = trials.scene(parse_case(CASE))
    missing = claim_of("scale-missing").semantics
    words = "in the first tile the logits are not scaled"
    small = replace(
        missing, name="scale-missing-here", sentence=words, build=lambda s: missing.build(s) if s is scene else iter(())
    )

    assert withstood(trials, scene, Named([Claim(small)])) is not None


def test_a_name_about_values_is_not_asked_of_more_tiles():
    """Beyond 100 keys the kernel takes another way, and is wrong in another one."""
    subject = planted(scale=lambda s, p: 1.0 if p.case.seq_k < 100 else 2.0)

    holds, _ = kept(subject, CASE, "scale-missing")

    assert holds
    assert stretched_of(subject) == 0


def stretched_of(subject):
    """How many stretched cases the name about values has run."""
    trials = Trials(subject, 600.0)
    scene = trials.scene(parse_case(CASE))
    withstood(trials, scene, Named([claim_of("scale-missing")]))
    return len(trials.scenes) - 1


@pytest.mark.parametrize(("missed", "holds"), [(0.0, True), (0.001, True), (0.1, False)])
def test_values_that_a_large_case_misses_by_a_hair_are_no_other_mistake(missed, holds):
    """Beyond 100 keys the LSE, which is 2 times what it should be, is off once more by a share of that."""
    subject = planted(lse=lambda s, whole, total: whole * (2.0 + missed * (s.count > 100)))

    def counted(see):
        subject.count = see.shape[-1]
        return see

    subject.drop_keys = counted
    trials = Trials(subject, 600.0)
    scene = trials.scene(parse_case(CASE))
    twice = Semantics(
        name="twice", sentence="the LSE of a tile is 2 times what it should be", build=_lse_twice, outputs=("lse",)
    )
    assert Claim(twice).answer(scene) is Answer.CLEAR

    assert (withstood(trials, scene, Named([Claim(twice)])) is not None) is holds


def _lse_twice(scene):
    yield Alternative(finish=lambda found: found | {"lse": found["lse"].times(2.0)})


@pytest.mark.parametrize(
    ("text", "supports"),
    [
        ("fv1 seq_q=2 seq_k=2 dim_qk=8 dim_v=8 window=0,1 backward=no", ANY),
        (
            "fv1 batch=3 heads_q=8 heads_kv=4 seq_q=40 seq_k=30 dim_qk=8 dim_v=8 causal=top-left klen=30,9,1 backward=no",
            ANY,
        ),
        ("fv1 seq_q=5 seq_k=9 dim_qk=8 dim_v=8 packed=0,2,5/0,4,9", ANY),
        ("fv1 seq_q=64 seq_k=64 dim_qk=8 dim_v=8", Supports(square=True, seq_multiple=64)),
        ("fv1 seq_q=3 seq_k=64 dim_qk=8 dim_v=8", Supports(max_seq_q=4)),
    ],
)
def test_stretched_cases_have_several_tiles_and_are_accepted(text, supports):
    cases = list(stretched(supports, parse_case(text)))

    assert len(cases) == len(set(cases)) >= 3
    assert all(supports.refusal(each) is None and work(each) <= LARGEST for each in cases)
    assert all(each.seq_k >= 128 and each.values.regime == "normal" for each in cases)
    assert supports.max_seq_q or all(each.seq_q >= 80 for each in cases)


def test_a_window_gets_sides_over_several_tiles_and_the_other_alignment():
    cases = list(stretched(ANY, parse_case("fv1 seq_q=2 seq_k=2 dim_qk=8 dim_v=8 window=0,* backward=no")))
    windows = [each.mask.window for each in cases]

    assert (0, None) in windows
    assert sum(left > 16 and left % 16 > 0 and right is None for left, right in windows) >= 3
    assert {each.mask.aligned_at_end for each in cases} == {False, True}


def test_a_window_with_a_right_side_gets_no_second_one_of_a_causal_mask():
    """A name about the window alone says nothing of a causal mask, which may be wrong by the same line."""
    cases = list(stretched(ANY, parse_case("fv1 seq_q=2 seq_k=2 dim_qk=8 dim_v=8 window=*,0 backward=no")))

    assert {each.mask.causal for each in cases} == {None}
    assert {each.mask.aligned_at_end for each in cases} == {False, True}


def test_few_rows_get_a_window_that_begins_at_an_edge_between_them():
    few = Supports(masks=("causal", "window"), max_seq_q=16)
    cases = list(stretched(few, parse_case("fv1 seq_q=2 seq_k=2 dim_qk=8 dim_v=8 window=0,* backward=no")))
    begins = [
        (each.seq_k - each.seq_q + row - each.mask.window[0]) // 64
        for each in cases
        if each.mask.aligned_at_end
        for row in (0, each.seq_q - 1)
    ]

    assert len(begins) == 2
    assert begins[0] < begins[1]


def test_lengths_end_before_the_buffer():
    cases = list(stretched(ANY, parse_case("fv1 seq_q=2 seq_k=20 dim_qk=8 dim_v=8 klen=20 backward=no")))

    assert any(each.mask.key_lengths[0] < each.seq_k - 32 for each in cases)


def test_splits_get_fewer_so_that_each_has_several_tiles():
    supports = Supports(launch=(("splits", (1, 2, 3, 20)),))
    cases = list(stretched(supports, parse_case("fv1 seq_k=20 dim_qk=8 dim_v=8 launch=splits:20")))

    assert {dict(each.launch)["splits"] for each in cases} == {2, 3, 20}
