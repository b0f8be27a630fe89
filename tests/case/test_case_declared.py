"""Declarations of sizes, masks, scales, storage and launches: what is drawn, listed and refused."""

import math
import re
from collections import Counter

import pytest

from flashverify.campaign.worker import search
from flashverify.case import parse_case
from flashverify.case.space.matrix import standard_matrix
from flashverify.case.space.strategies import CPU, GPU, cases
from flashverify.case.supports import Supports
from flashverify.errors import UsageError
from tests.fast_tier import fast_one_in

MASKS = ("causal", "window", "key_lengths", "query_lengths", "packed", "tree", "prefix_lengths")
DECLARED = {
    "multiples": Supports(masks=MASKS, seq_multiple=128),
    "square": Supports(masks=MASKS, square=True, empty=True),
    "square multiples": Supports(masks=("causal", "packed"), seq_multiple=64, square=True),
    "listed lengths": Supports(masks=("causal", "tree", "packed"), seq_q=[1, 4], seq_k=(64, 256, 1024)),
    "listed and empty": Supports(masks=("packed", "key_lengths"), seq_q=(8, 16), seq_k=range(8, 100, 8), empty=True),
    "one length": Supports(masks=("causal",), rectangular_causal=False, seq_q=(48, 50), seq_k=(50, 52)),
    "ranges": Supports(masks=("packed",), seq_q=range(1, 5), seq_k=range(1, 4097)),
    "heads": Supports(heads_q=(8, 32), group_sizes=(1, 4)),
    "heads at will": Supports(heads_q=range(5, 200), group_sizes=range(3, 17)),
    "one kv head": Supports(group_sizes=(16,)),
    "scales": Supports(scales=("default", 0.125)),
    "contiguous": Supports(contiguous=True, layouts=("bshd", "bhsd"), dlse=True, strided=True, logits=("sink",)),
    "left windows": Supports(masks=("causal", "window", "packed"), window_sides=("left",)),
    "windows at the end": Supports(masks=("causal", "window"), window_alignments=("bottom-right",)),
    "windows at both": Supports(masks=("causal", "window"), window_alignments=("top-left", "bottom-right")),
    "always packed": Supports(masks=MASKS, required_masks=("packed",), max_seq_q=4),
    "always causal": Supports(masks=MASKS, required_masks=("causal",), rectangular_causal=False),
    "always prefix": Supports(masks=MASKS, required_masks=("prefix_lengths", "causal")),
    "one part, always": Supports(masks=("packed", "causal"), required_masks=("packed",), combine_masks=False),
    "always paged": Supports(masks=("key_lengths",), page_sizes=(16, 5), always_paged=True, backward=False),
    "configurations": Supports(launch_configs=({"block_m": 16, "block_n": 64}, {"block_m": 64, "block_n": 16})),
    "launch of multiples": Supports(seq_multiple=16, square=True, launch=(("block_m", (16, 32)), ("stages", (1, 3)))),
    "rare launches": Supports(launch_configs=({"a": 1}, {"a": 2}), even_launches=False),
}


def draw(supports, count=60, profile=CPU, seed=0):
    return list(search.draw(cases(supports, profile=profile), count, seed))


def sequences(case):
    return ((case.seq_q, case.seq_k),) if case.mask.packed is None else case.mask.packed.lengths()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("profile", fast_one_in(2, [pytest.param(CPU, id="cpu"), pytest.param(GPU, id="gpu")], kept=2))
def test_every_draw_is_inside_the_declaration(name, profile):
    supports = DECLARED[name]

    count = 20 if profile is CPU else 8
    drawn = draw(supports, count, profile)

    assert len(drawn) == count
    assert all(supports.refusal(case) is None for case in drawn)


MET = {
    "multiples": (lambda c: [c.seq_q, c.seq_k], {128, 256}),
    "square multiples": (lambda c: [c.seq_k], {64, 128}),
    "listed lengths": (lambda c: sequences(c)[:1], {(q, k) for q in (1, 4) for k in (64, 256, 1024)}),
    "listed and empty": (lambda c: [q for q, _ in sequences(c)], {0, 8, 16}),
    "one length": (lambda c: [(c.seq_q, c.seq_k)], {(50, 50), (48, 50), (48, 52), (50, 52)}),
    "heads": (lambda c: [(c.heads_q, c.heads_kv)], {(8, 8), (8, 2), (32, 32), (32, 8)}),
    "scales": (lambda c: [c.scale], {None, 0.125}),
    "contiguous": (lambda c: [c.grad.do], {"dense", "zero"}),
    "left windows": (
        lambda c: [tuple(side is None for side in c.mask.window)] if c.mask.window else [],
        {(False, True), (True, True)},
    ),
    "windows at both": (
        lambda c: [(c.mask.causal, c.mask.window_alignment)] if c.mask.window else [],
        {(None, None), (None, "bottom-right"), ("top-left", None), ("bottom-right", None)},
    ),
    "always packed": (lambda c: [len(c.mask.packed.lengths())], {1, 2, 3, 4, 7, 12, 24}),
    "always paged": (lambda c: [c.storage.page_size], {16, 5}),
    "configurations": (
        lambda c: [c.launch],
        {(), (("block_m", 16), ("block_n", 64)), (("block_m", 64), ("block_n", 16))},
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", fast_one_in(5, MET))
def test_draws_meet_the_declared_values_and_no_others(name):
    values, expected = MET[name]
    met = {value for case in draw(DECLARED[name], 100) for value in values(case)}

    assert expected <= met
    if name not in ("multiples", "square multiples"):
        assert met == expected


EXCLUDED = {
    "always packed": {"key_lengths", "query_lengths"},
    "always causal": {"tree"},
    "always prefix": {"tree"},
    "one part, always": {"causal"},
}
"""Declared parts that cannot stand with those that every case has."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", fast_one_in(12, DECLARED, kept=2))
def test_the_matrix_of_a_narrow_subject_has_cases_inside_its_declaration(name):
    supports = DECLARED[name]
    matrix = standard_matrix(supports, device="cpu")

    assert len(matrix) > 150
    assert all(supports.refusal(case) is None for case in matrix)
    assert {part for case in matrix for part in case.mask.parts()} == set(supports.masks) - EXCLUDED.get(name, set())


def test_the_matrix_of_multiples_has_more_than_one_tile_and_every_number_of_heads():
    supports = Supports(masks=("causal",), seq_multiple=128, square=True, heads_q=(8, 32), group_sizes=(1, 4))
    matrix = standard_matrix(supports, device="cpu")

    assert {128, 256} <= {case.seq_k for case in matrix}
    assert {(8, 8), (8, 2), (32, 32), (32, 8)} == {(case.heads_q, case.heads_kv) for case in matrix}


def test_the_matrix_has_every_launch_configuration():
    supports = Supports(masks=("causal",), launch=(("block_m", (16, 32, 64, 128)), ("block_n", (16, 32, 64, 128))))
    met = {case.launch for case in standard_matrix(supports, device="cpu")}

    assert set(supports.launches()) <= met


@pytest.mark.parametrize("even", [True, False])
def test_launch_configurations_are_drawn_evenly_unless_small_tiles_are_to_come_more_often(even):
    pairs = (("block_m", (16, 64)), ("block_n", (16, 64)))
    drawn = draw(Supports(masks=("causal",), launch=pairs, even_launches=even), 150)
    counts = Counter(case.launch for case in drawn)

    assert set(counts) == {(), *Supports(launch=pairs).launches()}
    smallest, largest = (counts[("block_m", size), ("block_n", size)] for size in (16, 64))
    assert (smallest > 3 * largest) is not even
    assert not even or min(counts.values()) > 150 / 12


def test_half_of_the_cases_with_tiles_end_at_a_tile_or_beside_it():
    drawn = draw(Supports(masks=("causal",), launch=(("block_m", (48,)), ("stages", (1, 2)))), 120)
    lengths = [n for case in drawn if case.launch for n in (case.seq_q, case.seq_k)]
    near = [n for n in lengths if n >= 47 and (n + 1) % 48 <= 2]

    assert len(near) > len(lengths) / 4
    assert {n % 48 for n in near} == {47, 0, 1}


REFUSED = {
    "multiples": ("seq_q=128 seq_k=100", "seq_k=100, it has multiples of 128"),
    "square": ("seq_q=2 seq_k=3", "seq_q=2 with seq_k=3, it has as many rows as keys"),
    "square multiples": ("seq_q=128 seq_k=64 packed=0,64/0,64", "seq_q=128 with seq_k=64, it has as many"),
    "listed lengths": ("seq_q=2 seq_k=64", "seq_q=2, it has 1 or 4"),
    "listed and empty": ("seq_q=8 seq_k=12 packed=0,8/0,12", "seq_k=12, it has 8 to 96 by 8"),
    "ranges": ("seq_q=5 seq_k=9", "seq_q=5, it has 1 to 4"),
    "heads": ("heads_q=16 heads_kv=4", "heads_q=16, it has 8 or 32"),
    "heads at will": ("heads_q=8 heads_kv=4", "heads_q / heads_kv=2, it has 3 to 16"),
    "scales": ("scale=1", "scale=1.0, it has ('default', 0.125)"),
    "contiguous": ("do=transposed layout=bshd", "do=transposed, it has contiguous tensors alone"),
    "left windows": ("window=3,0", "window=(3, 0), it has sides ('left',)"),
    "windows at the end": ("window=3,0", "a top-left window without causal, it has ('bottom-right',)"),
    "left windows, at the end": ("window=3,* window_align=bottom-right", "a bottom-right window without causal"),
    "always packed": ("seq_k=5", "mask parts [], it needs ('packed',)"),
    "always paged": ("seq_k=5 backward=no", "k and v without pages, it has page sizes (16, 5) alone"),
    "configurations": ("launch=block_m:16,block_n:16", "launch=block_m:16,block_n:16"),
    "launch of multiples": ("seq_q=16 seq_k=16 launch=block_m:64", "launch block_m=64, it has (16, 32)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_case_outside_the_declaration_is_refused_with_its_value(name):
    text, reason = REFUSED[name]
    supports = DECLARED[name.split(",")[0]]

    assert str(supports.refusal(parse_case(f"fv1 {text}"))).startswith(reason)


def test_a_scale_spelt_out_is_the_default_one():
    scale = (1.0 / math.sqrt(24)).hex()
    supports = Supports(scales=("default",))

    assert supports.refusal(parse_case(f"fv1 dim_qk=24 dim_v=24 scale={scale}")) is None
    assert supports.refusal(parse_case("fv1 dim_qk=24 dim_v=24 scale=0.2")) is not None


WRONG = {
    "seq_multiple=0": {"seq_multiple": 0},
    "seq_multiple=True": {"seq_multiple": True},
    "seq_q=(0,)": {"seq_q": (0,)},
    "seq_q=64": {"seq_q": 64},
    "seq_k=range(0, 9)": {"seq_k": range(9)},
    "seq_q=range(1, 100)": {"seq_q": range(1, 100), "seq_multiple": 128},
    "square=True": {"seq_q": (64,), "seq_k": (128,), "square": True},
    "rectangular_causal=False": {
        "seq_q": (1,),
        "seq_k": (64,),
        "masks": ("causal",),
        "rectangular_causal": False,
    },
    "seq_k=(2,)": {"seq_q": (4,), "seq_k": (2,), "masks": ("tree",)},
    "heads_q=()": {"heads_q": ()},
    "group_sizes=(3,)": {"heads_q": (8, 32), "group_sizes": (3,)},
    "group_sizes=(4,)": {"group_sizes": (4,), "gqa": False},
    "masks=('casual',)": {"masks": ("casual",)},
    "masks='causal'": {"masks": "causal"},
    "required_masks=('packed',)": {"required_masks": ("packed",)},
    "required_masks=('causal', 'tree')": {"masks": ("causal", "tree"), "required_masks": ("causal", "tree")},
    "required_masks=('prefix_lengths',)": {"masks": ("prefix_lengths",), "required_masks": ("prefix_lengths",)},
    "window_sides=('top',)": {"window_sides": ("top",)},
    "window_alignments=()": {"window_alignments": ()},
    "scales=('big',)": {"scales": ("big",)},
    "scales=(inf,)": {"scales": (math.inf,)},
    "always_paged=True": {"always_paged": True},
    "launch_configs=({'a': 1.5},)": {"launch_configs": ({"a": 1.5},)},
    "launch_configs=({'b': 1},)": {"launch_configs": ({"b": 1},), "launch": (("a", (1,)),)},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_declaration_that_cannot_be_is_refused_by_name(name):
    with pytest.raises(UsageError, match=rf"^Supports\({re.escape(name)}\) is not accepted: \w"):
        Supports(**WRONG[name])


@pytest.mark.parametrize("returned", [True, False, 0])
def test_a_condition_that_returns_no_text_is_refused_in_words(returned):
    supports = Supports(also=lambda case: returned)
    said = re.escape(f"Supports(also=...) returned {returned!r} for fv1")
    with pytest.raises(UsageError, match=said + ".*None where the case is supported, otherwise the reason"):
        supports.refusal(parse_case("fv1"))
    with pytest.raises(UsageError, match=said):
        search.draw(cases(supports, profile=CPU), 1, 0)
