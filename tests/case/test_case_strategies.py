import dataclasses
import itertools
from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, find, settings

from flashverify.campaign.worker import search
from flashverify.case import DTYPES, LAYOUTS, POISONS, PRECISIONS, REGIMES
from flashverify.case.space.strategies import CPU, GPU, cases
from flashverify.subjects.interface import Supports

WIDE = Supports(
    precisions=PRECISIONS,
    masks=("causal", "key_lengths", "query_lengths", "tree", "window"),
    empty=True,
    scales=("positive", "zero", "negative"),
    dlse=True,
    launch=(("block_m", (16, 32)), ("block_n", (16, 32))),
)
QUIET = settings(database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def draw(count, supports=WIDE, profile=CPU):
    return list(search.draw(cases(supports, profile=profile), count, 0))


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.thorough)])
def drawn_on(request):
    return request.param, draw(400, profile=GPU if request.param == "cuda" else CPU)


AXES = {
    "regime": (lambda c: c.values.regimes, REGIMES),
    "mixed": (lambda c: [c.values.mixed], (False, True)),
    "dtype": (lambda c: [c.dtype], DTYPES),
    "precision": (lambda c: [c.precision], PRECISIONS),
    "part": (lambda c: c.mask.parts(), WIDE.masks),
    "causal": (lambda c: [c.mask.causal], (None, "top-left", "bottom-right")),
    "poison": (lambda c: [c.storage.padding], POISONS),
    "layout": (lambda c: [c.storage.layout], LAYOUTS),
    "gap": (lambda c: [c.storage.gap], (0, 1, 3, 8)),
    "offset": (lambda c: [c.storage.offset], (0, 1, 4, 8)),
    "expand": (lambda c: [c.storage.expand], (False, True)),
    "do": (lambda c: [c.grad.do], ("dense", "expanded", "transposed", "zero")),
    "dlse": (lambda c: [c.grad.dlse], (False, True)),
    "backward": (lambda c: [c.grad.backward], (False, True)),
    "scale": (
        lambda c: [
            "default"
            if c.scale is None
            else "negative"
            if c.scale < 0
            else "zero"
            if c.scale == 0
            else "tiny"
            if c.scale < 1e-9
            else "huge"
            if c.scale > 99
            else "plain"
        ],
        ("default", "negative", "zero", "tiny", "huge", "plain"),
    ),
    "lengths": (
        lambda c: ["q<k" if c.seq_q < c.seq_k else "q>k" if c.seq_q > c.seq_k else "q=k"],
        ("q<k", "q>k", "q=k"),
    ),
    "group": (lambda c: [c.heads_q // c.heads_kv], (1, 2, 3)),
    "uneven group": (lambda c: [(c.heads_q, c.heads_kv) == (6, 2)], (True,)),
    "empty": (lambda c: [n for n in ("batch", "seq_q", "seq_k") if not getattr(c, n)], ("batch", "seq_q", "seq_k")),
    "dims": (lambda c: ["equal" if c.dim_qk == c.dim_v else "unequal"], ("equal", "unequal")),
    "tail of 16": (lambda c: [c.seq_k % 16], (0, 1, 15)),
    "key length": (
        lambda c: [
            "0" if n == 0 else "1" if n == 1 else "full" if n == c.seq_k else "tail" for n in c.mask.key_lengths or ()
        ],
        ("0", "1", "full", "tail"),
    ),
    "tree prefix": (lambda c: [c.seq_k > c.seq_q] if c.mask.tree else [], (False, True)),
    "tree branches": (lambda c: [len(set(c.mask.tree)) < len(c.mask.tree)] if c.mask.tree else [], (False, True)),
    "edited": (lambda c: [e.tensor for e in c.values.edits], ("q", "k", "v", "do")),
    "edits": (
        lambda c: [
            "nan" if e.value != e.value else "inf" if abs(e.value) == float("inf") else "finite" for e in c.values.edits
        ],
        ("nan", "inf", "finite"),
    ),
    "launch": (lambda c: [bool(c.launch)], (False, True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
def test_draws_meet_every_value_of_every_axis(drawn_on, axis):
    _, drawn = drawn_on
    values, expected = AXES[axis]
    met = Counter(itertools.chain.from_iterable(map(values, drawn)))

    assert not set(expected) - set(met), met


@pytest.mark.slow
def test_draws_stay_within_the_profile(drawn_on):
    device, drawn = drawn_on
    profile = GPU if device == "cuda" else CPU
    for case in drawn:
        assert max(case.seq_q, case.seq_k) <= profile.max_long
        assert min(case.seq_q, case.seq_k) <= profile.max_seq
        assert (case.dim_qk, case.dim_v) in profile.dims
        assert case.batch * case.heads_q <= (128 if device == "cuda" else 64)
        work = case.batch * case.heads_q * case.seq_q * case.seq_k * (case.dim_qk + case.dim_v)
        assert work <= profile.max_work * (4 if case.launch else 1)
        assert WIDE.refusal(case) is None


NARROW = {
    "plain": Supports(),
    "one dtype": Supports(dtypes=("bf16",), dim_multiple=64, dim_max=64, equal_dims=True, gqa=False),
    "odd dims": Supports(dim_multiple=56, dim_max=112),
    "square causal": Supports(masks=("causal",), causal=("top-left",), rectangular_causal=False, empty=True),
    "one part": Supports(masks=("causal", "tree", "key_lengths", "query_lengths"), combine_masks=False),
    "negative": Supports(scales=("negative",), layouts=("bshd",), gaps=False, unaligned=False, expand=False),
    "forward": Supports(backward=False, dlse=True, non_finite=False),
    "tf32 alone": Supports(precisions=("tf32",)),
    "also": Supports(
        masks=("causal",),
        launch=(("b", (1, 2)),),
        also=lambda c: "no" if c.dtype == "bf16" or c.launch == (("b", 2),) else None,
    ),
}


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NARROW)
def test_only_supported_cases_are_drawn(name):
    supports = NARROW[name]
    drawn = draw(60, supports)

    assert len(drawn) >= 50
    assert all(supports.refusal(case) is None for case in drawn)
    assert {p for c in drawn for p in c.mask.parts()} == set(supports.masks)
    assert supports.non_finite or not any(
        abs(e.value) == float("inf") or e.value != e.value for c in drawn for e in c.values.edits
    )


def test_the_precision_of_fp32_products_leaves_16_bit_types_alone():
    drawn = draw(60, Supports(precisions=("tf32",)))

    assert {(c.dtype, c.precision) for c in drawn} == {("fp16", "ieee"), ("bf16", "ieee"), ("fp32", "tf32")}


HUGE = ("sink", "slopes", "bias")


@pytest.mark.slow
@pytest.mark.parametrize("huge", [True, False])
def test_huge_modifiers_are_drawn_for_who_says_what_they_do(huge):
    supports = Supports(logits=("alibi", "bias", "sink"), huge_modifiers=huge)
    edits = [(c.dtype, e) for c in draw(800 if huge else 300, supports) for e in c.values.edits if e.tensor in HUGE]
    large = {(e.tensor, e.value > 0) for _, e in edits if abs(e.value) >= 2.0**95}

    assert large == ({(name, sign) for name in HUGE for sign in (True, False)} if huge else set())
    assert all(abs(e.value) <= 65504 for dtype, e in edits if dtype == "fp16" and e.tensor == "bias")
    assert {e.tensor for _, e in edits} == set(HUGE)


def siblings(case):
    tree = case.mask.tree or ()
    return any(tree.count(parent) > 1 for parent in tree if parent >= 0)


COSTLY = (
    "a nan",
    "a group without keys",
    "negative logits in a tail",
    "bottom-right rows without keys",
)
"""Each seconds of shrinking over the same axes as the others."""
KNOWN = {
    "causal over a second tile": (
        lambda c: c.mask.causal and c.seq_k == 17 and not c.launch,
        "seq_k=17 dim_qk=8 dim_v=8 causal=top-left regime=zeros",
    ),
    "a group without keys": (
        lambda c: c.heads_q > c.heads_kv and c.seq_k and 0 in (c.mask.key_lengths or ()),
        "heads_q=2 dim_qk=8 dim_v=8 klen=0 regime=zeros",
    ),
    "a last query tile": (lambda c: c.seq_q >= 33, "seq_q=33 dim_qk=8 dim_v=8 regime=zeros"),
    "negative logits in a tail": (
        lambda c: c.values.regime == "negative" and c.seq_k % 16,
        "dim_qk=8 dim_v=8 regime=negative",
    ),
    "a nan": (
        lambda c: any(e.value != e.value for e in c.values.edits),
        "dim_qk=8 dim_v=8 regime=zeros edits=q:0,0,0,0:nan",
    ),
    "bottom-right rows without keys": (
        lambda c: c.mask.causal == "bottom-right" and c.seq_q > c.seq_k > 0,
        "seq_q=2 dim_qk=8 dim_v=8 causal=bottom-right regime=zeros",
    ),
}


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in COSTLY)) for name in KNOWN]
)
def test_known_hard_cases_are_found_and_shrink_to_their_minimum(name):
    predicate, minimum = KNOWN[name]
    supports = dataclasses.replace(WIDE, masks=("causal", "key_lengths", "tree"))

    # Lengths drawn at the edge of a tile do not shrink without their launch: a search that begins with such a case ends there.
    given = settings(QUIET, max_examples=5000)
    assert f"fv1 {minimum}" == str(find(cases(supports), predicate, settings=given, random=Random(1)))


@pytest.mark.slow
@pytest.mark.thorough
def test_siblings_in_a_tree_are_found_and_shrink_to_three_nodes():
    found = find(
        cases(dataclasses.replace(WIDE, masks=("tree",), even_launches=False)),
        siblings,
        settings=settings(QUIET, max_examples=5000),
    )

    assert (found.seq_q, found.seq_k) == (3, 3)
    assert found.mask.tree == (-1, 0, 0)
