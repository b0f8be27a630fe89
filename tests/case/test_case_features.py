import dataclasses
import itertools
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from flashverify.campaign.worker import search
from flashverify.case import PRECISIONS, Supports, parse_case, standard_matrix
from flashverify.case.space.compile_keys import list_compile_keys
from flashverify.case.space.matrix import _case
from flashverify.case.space.matrix_features import large_features, listed, paged
from flashverify.case.space.optional_parts import all_extras, all_parts
from flashverify.case.space.strategies import CPU, GPU, cases

FAMILY = Supports(
    precisions=PRECISIONS,
    masks=("causal", "window", "key_lengths", "query_lengths", "packed", "tree", "blocks", "bitmap"),
    logits=("softcap", "alibi", "bias", "sink"),
    dropout=True,
    empty=True,
    scales=("positive", "zero", "negative"),
    dlse=True,
    launch=(("block_m", (16, 32)), ("block_n", (16, 32))),
)
DECODE = Supports(masks=("causal", "key_lengths", "tree"), backward=False, page_sizes=(16, 64), max_seq_q=16)
QUIET = settings(database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def draw(count, supports, profile=CPU):
    return list(search.draw(cases(supports, profile=profile), count, 0))


def parts(case):
    extra = {"dropout"} if case.dropout else set()
    return {*case.mask.parts(), *case.logits.names(), *extra}


def sides(case):
    full = max(case.seq_q, case.seq_k)
    for side in case.mask.window or ():
        if side is None:
            yield "open"
        elif side < 2:
            yield str(side)
        else:
            yield "full" if side == full else "edge" if side % 16 in (0, 1, 15) else "other"


def packings(case):
    if case.mask.packed is None:
        return
    packed, lengths = case.mask.packed, case.mask.packed.lengths()
    yield from ("first empty" for pair in lengths[:1] if 0 in pair)
    yield from ("last empty" for pair in lengths[-1:] if 0 in pair)
    yield from ("inner empty" for pair in lengths[1:-1] if 0 in pair)
    yield from ("keys alone" for rows, keys in lengths if keys > rows == 0)
    yield from ("rows alone" for rows, keys in lengths if rows > keys == 0)
    yield "many" if len(lengths) > 2 else "few"
    if packed.cu_q[-1] < case.seq_q:
        yield "rows behind"
    if packed.cu_k[-1] < case.seq_k:
        yield "keys behind"
    yield from (f"packed {part}" for part in ("causal", "window", "tree") if getattr(case.mask, part) is not None)


def window_open(case):
    left, right = case.mask.window or (0, 0)
    return ["left only"] * (right is None and left is not None) + ["right only"] * (left is None and right is not None)


AXES = {
    "parts": (parts, {*FAMILY.masks, *FAMILY.logits, "dropout"}, 60),
    "window": (sides, {"open", "0", "1", "full", "edge", "other"}, 40),
    "one side": (window_open, {"left only", "right only"}, 30),
    "packed": (
        packings,
        {
            *("first empty", "last empty", "inner empty", "keys alone", "rows alone", "many", "few"),
            *("rows behind", "keys behind"),
        },
        10,
    ),
    "bitmap": (lambda c: [c.mask.bitmap.live] if c.mask.bitmap else [], {16, 128, 240, 256}, 8),
    "bitmap of no pair": (lambda c: [c.mask.bitmap.live == 0] if c.mask.bitmap else [], {True}, 2),
    "bitmap of each head": (lambda c: [c.mask.bitmap.each] if c.mask.bitmap else [], {False, True}, 20),
    "blocks": (lambda c: [c.mask.blocks.live] if c.mask.blocks else [], {0, 16, 128, 240, 256}, 4),
    "sliding": (lambda c: [c.mask.blocks.sliding] if c.mask.blocks else [], {0, 1, 2, 3}, 4),
    "butterfly": (lambda c: [c.mask.blocks.butterfly] if c.mask.blocks else [], {False, True}, 10),
    "block rows": (lambda c: [min(c.mask.blocks.rows, 32)] if c.mask.blocks else [], {16, 32}, 10),
    "softcap": (lambda c: [c.logits.softcap], {None, 1.0, 30.0, 50.0}, 12),
    "bias": (lambda c: [c.logits.bias], {None, "full", "head", "shared"}, 15),
    "dropout": (lambda c: [c.dropout], {0.0, 0.1, 0.5, 0.9}, 15),
    "together": (
        lambda c: itertools.combinations(sorted(parts(c)), 2),
        {("bias", "key_lengths"), ("alibi", "causal"), ("causal", "packed")},
        6,
    ),
}


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def drawn(request):
    return draw(1000, FAMILY, GPU) if request.param == "cuda" else draw(2000, FAMILY, CPU)


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
def test_draws_meet_every_edge_often(drawn, axis):
    values, expected, least = AXES[axis]
    met = Counter(itertools.chain.from_iterable(map(values, drawn)))

    assert {value: met[value] for value in expected if met[value] < least * len(drawn) // 4000} == {}


@pytest.mark.slow
def test_packed_sequences_meet_bands_and_trees():
    supports = Supports(masks=("causal", "window", "packed", "tree"))
    met = Counter(itertools.chain.from_iterable(map(packings, draw(250, supports))))

    assert min(met[f"packed {part}"] for part in ("causal", "window", "tree")) > 3, met


@pytest.mark.slow
def test_plain_is_likely_and_a_case_has_one_or_two_parts(drawn):
    assert sum(not parts(case) for case in drawn) > 0.03 * len(drawn)
    assert 1 < sum(len(parts(case)) for case in drawn) / len(drawn) < 2.5


@pytest.mark.slow
@pytest.mark.parametrize("profile", [CPU, GPU], ids=["cpu", "cuda"])
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
@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("profile", [CPU, GPU], ids=["cpu", "cuda"])
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


DIMS, FORMATS = [(64, 64), (128, 128), (40, 40), (128, 64)], [("fp16", "ieee"), ("bf16", "ieee"), ("fp32", "tf32")]


def test_kinds_spread_over_the_features():
    kinds = list_compile_keys(FAMILY, DIMS, FORMATS, 128)
    met = Counter(name for kind in kinds for name in (*kind.parts, *kind.features))

    assert 100 <= len(kinds) <= 128
    assert all(met[name] >= 4 for name in (*FAMILY.masks, *FAMILY.logits, "dropout")), met
    assert {kind.dims for kind in kinds} == set(DIMS)
    assert sum(not kind.features and not kind.parts for kind in kinds) >= 4
    assert any(len(kind.features | kind.parts) >= 3 for kind in kinds)
    assert not any("packed" in kind.parts and {"key_lengths", "query_lengths"} & kind.parts for kind in kinds)


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


def test_page_sizes_take_turns():
    assert {None, 16, 64} == {kind.page_size for kind in list_compile_keys(DECODE, DIMS, FORMATS, 30)}


def test_a_subject_without_extras_has_no_extra_sets():
    assert [frozenset()] == all_extras(Supports(masks=("causal", "tree", "window", "key_lengths")))
    assert len(all_parts(Supports(masks=("causal", "tree", "window", "key_lengths")))) == 10


def test_every_entry_about_a_feature_is_a_case_on_its_own():
    base = "batch=1 heads_q=2 heads_kv=1 seq_q=33 seq_k=33 dim_qk=32 dim_v=32"
    entries = (*listed("features"), *large_features(), *listed("added"), *paged((16, 64)))

    assert [entry for entry in entries if _case([base, entry]) is None] == []
    assert len(set(entries)) == len(entries)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_matrix_has_every_feature_alone_and_in_company(device):
    matrix = standard_matrix(FAMILY, device=device)
    met = Counter(name for case in matrix for name in parts(case))

    assert all(FAMILY.refusal(case) is None for case in matrix)
    assert all(met[name] >= 7 for name in (*FAMILY.masks, *FAMILY.logits, "dropout")), met
    alone = {frozenset(parts(case)) for case in matrix}
    assert {frozenset({name}) for name in met} <= alone
    assert {name for case in matrix for name in packings(case)} >= AXES["packed"][1] - {"keys behind"}
    assert device == "cuda" or len(matrix) <= 450


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_matrix_of_a_decode_subject_is_paged_and_long(device):
    matrix = standard_matrix(DECODE, device=device)

    assert len(matrix) >= 150
    assert all(DECODE.refusal(case) is None for case in matrix)
    assert {None, 16, 64} == {case.storage.page_size for case in matrix}
    assert {1, 16} <= {case.seq_q for case in matrix}


def test_a_subject_that_needs_pages_has_a_matrix_too():
    needs = dataclasses.replace(DECODE, also=lambda case: None if case.storage.page_size else "contiguous")

    assert len(standard_matrix(needs, device="cpu")) >= 150
