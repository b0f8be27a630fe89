"""Draws and refusals of the features that a subject declares."""

import dataclasses
import itertools
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from flashverify.campaign.worker import search
from flashverify.case import Supports, parse_case
from flashverify.case.space.strategies import CPU, GPU, cases
from tests.case.feature_family import AXES, DECODE, FAMILY, packings, parts

QUIET = settings(database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


PROFILES = [pytest.param(CPU, id="cpu"), pytest.param(GPU, id="cuda", marks=pytest.mark.thorough)]
"""They bound sizes; which parts are drawn does not depend on them."""


def draw(count, supports, profile=CPU):
    return list(search.draw(cases(supports, profile=profile), count, 0))


DRAWS = 1200
"""The rarest value that `AXES` names, all blocks alive, is met twenty times in them."""


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.thorough)])
def drawn(request):
    return draw(DRAWS, FAMILY, GPU if request.param == "cuda" else CPU)


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
def test_draws_meet_every_edge_often(drawn, axis):
    values, expected, least = AXES[axis]
    met = Counter(itertools.chain.from_iterable(map(values, drawn)))

    assert {value: met[value] for value in expected if met[value] < least} == {}


@pytest.mark.slow
@pytest.mark.thorough
def test_bitmaps_of_no_pair_are_drawn():
    met = Counter(case.mask.bitmap.live for case in draw(300, Supports(masks=("bitmap",))) if case.mask.bitmap)

    assert met[0] > 0, met


@pytest.mark.slow
@pytest.mark.thorough
def test_packed_sequences_meet_bands_and_trees():
    supports = Supports(masks=("causal", "window", "packed", "tree"))
    met = Counter(itertools.chain.from_iterable(map(packings, draw(250, supports))))

    assert min(met[f"packed {part}"] for part in ("causal", "window", "tree")) > 3, met


@pytest.mark.slow
def test_plain_is_likely_and_a_case_has_one_or_two_parts(drawn):
    assert sum(not parts(case) for case in drawn) > 0.03 * len(drawn)
    assert 1 < sum(len(parts(case)) for case in drawn) / len(drawn) < 2.5


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_decode_has_few_rows_long_keys_and_pages(profile):
    drawn = draw(500, DECODE, profile)
    pages = Counter(case.storage.page_size for case in drawn)

    assert max(case.seq_q for case in drawn) == 16
    assert sum(case.seq_q <= 4 and case.seq_k > 100 for case in drawn) > 30
    assert all(pages[size] > 40 for size in (None, 16, 64))
    assert sum(case.storage.page_size == 16 and case.seq_k % 16 in (1, 15) for case in drawn) > 10


NARROW = {
    "one part": dataclasses.replace(FAMILY, combine_masks=False),
    "square packed": Supports(
        masks=("causal", "packed"), rectangular_causal=False, causal=("top-left",), dropout=True, empty=True
    ),
    "short packed": Supports(masks=("packed", "tree"), max_seq_q=7),
    "blocks of 64": Supports(masks=("blocks", "window"), block_multiple=64),
    "logits alone": Supports(logits=("alibi", "sink")),
    "pages and packed": Supports(masks=("packed", "key_lengths"), page_sizes=(5,)),
}


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("profile", PROFILES)
def test_only_supported_cases_are_drawn(name, profile):
    supports = NARROW[name]
    count = 500 if name == "one part" else 150
    drawn = draw(count, supports, profile)

    assert len(drawn) == count
    assert all(supports.refusal(case) is None for case in drawn)
    expected = {*supports.masks, *supports.logits, *(["dropout"] if supports.dropout else [])}
    assert expected == {part for case in drawn for part in parts(case)}


REFUSED = {
    "window=1,0": "mask parts ['window']",
    "packed=0,1/0,1": "mask parts ['packed']",
    "softcap=30": "logits softcap=30.0, it has ()",
    "bias=head sink=yes": "logits bias=head, sink=True, it has ()",
    "alibi=yes": "logits alibi=True",
    "dropout=0.5": "dropout=0.5",
    "page_size=16": "page_size=16, it has ()",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_subject_lacks_is_refused_by_axis_and_value(text):
    assert Supports().refusal(parse_case(f"fv1 {text}")).startswith(REFUSED[text])
    accepting = dataclasses.replace(FAMILY, page_sizes=(16,))
    assert accepting.refusal(parse_case(f"fv1 {text}")) is None


def test_limits_of_features_are_refused_by_axis_and_value():
    def refusal(supports, text):
        return supports.refusal(parse_case(f"fv1 {text}"))

    assert refusal(DECODE, "page_size=8 backward=no") == "page_size=8, it has (16, 64)"
    assert refusal(DECODE, "seq_q=17 backward=no") == "seq_q=17, it has at most 16"
    assert refusal(FAMILY, "blocks=8,16,9,1") == "blocks=(8, 16), it has multiples of 16"
    square = dataclasses.replace(FAMILY, rectangular_causal=False, empty=False)
    assert refusal(square, "seq_q=3 seq_k=3 packed=0,2,3/0,1,3 causal=top-left") == "causal with seq_q=2, seq_k=1"
    assert refusal(square, "seq_q=9 seq_k=3 packed=0,2,3/0,2,3 causal=top-left") is None
    assert refusal(square, "packed=0/0") == "an empty batch or sequence"
    assert refusal(square, "packed=0,0/0,0") is None


@pytest.mark.slow
def test_alibi_reaches_beyond_the_distances_that_sixteen_bits_hold():
    drawn = search.draw(cases(Supports(logits=("alibi",)), profile=GPU), 300, 0)
    long = {kind: [c.seq_k for c in drawn if c.logits.alibi == kind] for kind in (False, True, "wild")}

    assert max(long[False]) <= GPU.max_long
    assert sum(n > 2050 for n in long[True] + long["wild"]) >= 5
    assert max(long[True] + long["wild"]) <= 4096
    assert all(c.seq_q * c.seq_k <= (2**19 if c.logits.alibi else 160**2) for c in drawn)


@pytest.mark.slow
def test_what_a_subject_does_not_promise_is_not_drawn():
    able = dataclasses.replace(FAMILY, strided=True)
    narrow = dataclasses.replace(FAMILY, wild_slopes=False)
    met = {name: search.draw(cases(s), 250, 1) for name, s in (("able", able), ("narrow", narrow))}

    assert any(c.storage.strided for c in met["able"])
    assert all(c.logits.alibi or c.logits.sink or c.grad.dlse for c in met["able"] if c.storage.strided)
    assert any(c.logits.alibi == "wild" for c in met["able"])
    assert {False, True} == {c.logits.alibi for c in met["narrow"]}
    assert narrow.refusal(parse_case("fv1 alibi=wild")) == "alibi=wild"
    assert narrow.refusal(parse_case("fv1 sink=yes strided=yes")) == "strided=yes"
