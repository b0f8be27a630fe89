import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashverify.case import (
    DTYPES,
    EDIT_TENSORS,
    LAYOUTS,
    POISONS,
    PRECISIONS,
    REGIMES,
    Bitmap,
    Blocks,
    Case,
    Edit,
    Grad,
    Logits,
    Mask,
    Packed,
    Storage,
    Values,
    format_case,
    parse_case,
)
from flashverify.errors import CaseTextError, UsageError

GOLDEN = {
    "fv1": Case(),
    "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=17 seq_k=33 dim_qk=64 dim_v=64 causal=bottom-right klen=5,33 regime=ties seed=7": Case(
        batch=2,
        heads_q=4,
        heads_kv=2,
        seq_q=17,
        seq_k=33,
        dim_qk=64,
        dim_v=64,
        mask=Mask(causal="bottom-right", key_lengths=(5, 33)),
        values=Values(regime="ties", seed=7),
    ),
    "fv1 seq_q=3 seq_k=5 dtype=fp32 precision=tf32 scale=0x1.0000000000000p-140 tree=-1,0,0": Case(
        seq_q=3, seq_k=5, dtype="fp32", precision="tf32", scale=2.0**-140, mask=Mask(tree=(-1, 0, 0))
    ),
    "fv1 scale=-0 edits=q:0,0,0,1:nan;v:0,0,0,0:-inf;k:0,0,0,0:-0;do:0,0,0,0:0.1": Case(
        scale=-0.0,
        values=Values(
            edits=(
                Edit("q", (0, 0, 0, 1), math.nan),
                Edit("v", (0, 0, 0, 0), -math.inf),
                Edit("k", (0, 0, 0, 0), -0.0),
                Edit("do", (0, 0, 0, 0), 0.1),
            )
        ),
    ),
    "fv1 window=*,0 qlen=1 packed=0,1/0,1 softcap=30 alibi=yes bias=head sink=yes dropout=0.5": Case(
        mask=Mask(window=(None, 0), query_lengths=(1,), packed=Packed((0, 1), (0, 1))),
        logits=Logits(softcap=30.0, alibi=True, bias="head", sink=True),
        dropout=0.5,
    ),
    "fv1 blocks=16,32,128,3 bitmap=7,1 layout=bshd gap=3 offset=1 expand=yes padding=nan page_size=16": Case(
        mask=Mask(blocks=Blocks(16, 32, 128, 3), bitmap=Bitmap(7, 1)),
        storage=Storage(layout="bshd", gap=3, offset=1, expand=True, padding="nan", page_size=16),
    ),
    "fv1 scale=0x1.2d68700000000p+20 do=expanded dlse=yes launch=block_m:16,block_n:32": Case(
        scale=1234567,  # an int is a number too
        grad=Grad(do="expanded", dlse=True),
        launch=(("block_m", 16), ("block_n", 32)),
    ),
    "fv1 batch=0 seq_q=0 seq_k=0 klen= tree= backward=no": Case(
        batch=0, seq_q=0, seq_k=0, mask=Mask(key_lengths=(), tree=()), grad=Grad(backward=False)
    ),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_a_case_has_its_golden_line(text):
    assert text == format_case(GOLDEN[text]) == str(GOLDEN[text])
    assert GOLDEN[text] == parse_case(text)
    assert text == format_case(parse_case(" ".join(["fv1", *reversed(text.split()[1:])])))


@st.composite
def any_case(draw):
    batch, kv, group, seq_q = (
        draw(st.integers(0, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 6)),
    )
    seq_k = seq_q + draw(st.integers(0, 6))
    tree = draw(st.none() | st.tuples(*(st.integers(-1, node - 1) for node in range(seq_q))))
    side = st.none() | st.integers(0, 9)
    lengths = lambda full: st.none() | st.tuples(*[st.integers(0, full)] * batch)  # noqa: E731
    cumulative = st.lists(st.integers(0, 4), min_size=2, max_size=2).map(lambda n: (0, n[0], n[0] + n[1]))
    plain = tree is None
    mask = Mask(
        causal=draw(st.sampled_from((None, "top-left", "bottom-right"))) if plain else None,
        window=draw(st.none() | st.tuples(side, side)) if plain else None,
        key_lengths=draw(lengths(seq_k)),
        query_lengths=draw(lengths(seq_q)),
        packed=draw(st.none() | st.builds(Packed, cumulative, cumulative)) if plain else None,
        tree=tree,
        blocks=draw(
            st.none() | st.builds(Blocks, st.integers(1, 9), st.integers(1, 9), st.integers(0, 256), st.integers(0, 99))
        ),
        bitmap=draw(st.none() | st.builds(Bitmap, st.integers(0, 256), st.integers(0, 99))),
    )
    dtype = draw(st.sampled_from(DTYPES))
    edit = st.builds(Edit, st.sampled_from(EDIT_TENSORS), st.just((0, 0, 0, 0)), st.floats())
    positive = st.floats(0, exclude_min=True, allow_infinity=False)
    return Case(
        batch=batch,
        heads_q=kv * group,
        heads_kv=kv,
        seq_q=seq_q,
        seq_k=seq_k,
        dtype=dtype,
        precision=draw(st.sampled_from(PRECISIONS)) if dtype == "fp32" else "ieee",
        scale=draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        mask=mask,
        logits=Logits(
            softcap=draw(st.none() | positive),
            alibi=draw(st.booleans()),
            bias=draw(st.sampled_from((None, "full", "head", "shared"))),
            sink=draw(st.booleans()),
        ),
        dropout=draw(st.floats(0, 1, exclude_max=True)),
        values=Values(
            regime=draw(st.sampled_from(REGIMES)),
            seed=draw(st.integers(0, 2**64 - 1)),
            edits=tuple(draw(st.lists(edit, max_size=3))) if batch * seq_q * seq_k else (),
        ),
        storage=Storage(
            layout=draw(st.sampled_from(LAYOUTS)),
            gap=draw(st.integers(0, 4096)),
            offset=draw(st.integers(0, 4096)),
            expand=draw(st.booleans()),
            padding=draw(st.sampled_from(POISONS)),
            page_size=draw(st.none() | st.integers(1, 99)),
        ),
        grad=Grad(
            do=draw(st.sampled_from(("dense", "expanded", "transposed", "zero"))),
            dlse=draw(st.booleans()),
            backward=draw(st.booleans()),
        ),
        launch=tuple(
            sorted(draw(st.dictionaries(st.sampled_from(("block_m", "stages", "x")), st.integers(-5, 512))).items())
        ),
    )


@given(any_case())
def test_every_case_survives_the_round_trip(case):
    text = format_case(case)

    assert case == parse_case(text)
    assert text == format_case(parse_case(text))
    assert "\n" not in text


BAD_LINES = {
    "": "a case starts with 'fv1', found ''",
    "fv2 batch=1": "a case starts with 'fv1', found 'fv2'",
    "fv1 nonsense": "unknown word 'nonsense' in a case; accepted keys: batch,",
    "fv1 colour=1": "unknown word 'colour=1'",
    "fv1 batch=1 batch=2": "batch is given twice in a case",
    "fv1 batch=x": "batch='x' is not accepted: invalid literal",
    "fv1 scale=1e999": "scale='1e999' is not accepted: beyond the range of a float64",
    "fv1 scale=nan": "scale=nan is not accepted: None or a finite number",
    "fv1 alibi=maybe": "alibi='maybe' is not accepted: yes or no",
    "fv1 window=1": "window='1' is not accepted",
    "fv1 window=-1,0": "window=(-1, 0) is not accepted: sides are None or >= 0",
    "fv1 blocks=1,2": "blocks='1,2' is not accepted",
    "fv1 blocks=0,2,3,4": "rows, keys >= 1",
    "fv1 bitmap=257,0": "0 <= live <= 256",
    "fv1 packed=0,2/0,1,1": "packed='0,2/0,1,1' is not accepted",
    "fv1 packed=1,2/0,1": "cumulative lengths start at 0 and never fall",
    "fv1 edits=x:0,0,0,0:1": "edit tensor='x' is not accepted",
    "fv1 edits=q:0,0,0:1": "edits='q:0,0,0:1' is not accepted",
    "fv1 edits=q:0,0,0,-1:1": "edit index=(0, 0, 0, -1) is not accepted: four integers >= 0",
    "fv1 edits=q:0,0,1,0:1": "inside q of shape (1, 1, 1, 16)",
    "fv1 launch=a:1,a:2": "sorted pairs, each name once",
    "fv1 launch=a-b:1": "names are identifiers",
    "fv1 batch=-1": "batch=-1 is not accepted: 0 <= size < 2**31",
    "fv1 dim_qk=0": "dim_qk=0 is not accepted: 1 <= size < 2**31",
    "fv1 heads_q=3 heads_kv=2": "heads_q=3 is not accepted: a multiple of heads_kv=2",
    "fv1 dtype=fp8": "dtype='fp8' is not accepted: one of ('fp16', 'bf16', 'fp32')",
    "fv1 precision=half": "precision='half' is not accepted",
    "fv1 precision=tf32": "'ieee' unless dtype is fp32",
    "fv1 dropout=1": "dropout=1.0 is not accepted: 0 <= dropout < 1",
    "fv1 regime=odd": "regime='odd' is not accepted",
    "fv1 seed=-1": "seed=-1 is not accepted",
    "fv1 layout=sbhd": "layout='sbhd' is not accepted",
    "fv1 gap=4097": "gap=4097 is not accepted",
    "fv1 offset=-1": "offset=-1 is not accepted",
    "fv1 padding=one": "padding='one' is not accepted",
    "fv1 page_size=0": "page_size=0 is not accepted",
    "fv1 softcap=0": "softcap=0.0 is not accepted",
    "fv1 bias=row": "bias='row' is not accepted",
    "fv1 do=sparse": "do='sparse' is not accepted",
    "fv1 causal=middle": "causal='middle' is not accepted",
    "fv1 klen=1,1": "key_lengths=(1, 1) is not accepted: one length per sequence, batch=1",
    "fv1 klen=2": "key_lengths=(2,) is not accepted: lengths <= 1",
    "fv1 qlen=-1": "query_lengths=(-1,) is not accepted: lengths are >= 0",
    "fv1 tree=-1,0": "tree=(-1, 0) is not accepted: one parent per query, seq_q=1",
    "fv1 seq_q=2 seq_k=2 tree=-1,1": "the parent of node 1 is -1 or a smaller index",
    "fv1 seq_q=2 seq_k=1 tree=-1,0": "seq_k=1 is not accepted: at least seq_q=2 under a tree mask",
    "fv1 tree=-1 causal=top-left": "a tree mask cannot be combined with causal, window or packed",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_refused_in_words(line):
    with pytest.raises(CaseTextError) as caught:
        parse_case(line)

    assert BAD_LINES[line] in str(caught.value)


@given(
    st.lists(
        st.sampled_from(
            ("fv1", "edits=", "tree=", "packed=", ",", ":", "/", ";", "=", "-1", "0", "q", "nan", " ", "launch=")
        ),
        max_size=9,
    )
)
def test_any_line_is_parsed_or_refused_as_text(parts):
    with contextlib.suppress(CaseTextError):
        parse_case("fv1 " + "".join(parts))


def test_edits_with_nan_are_equal_and_zeros_of_both_signs_are_not():
    nan = Edit("q", (0, 0, 0, 0), math.nan)
    zero, negative = Edit("q", (0, 0, 0, 0), 0.0), Edit("q", (0, 0, 0, 0), -0.0)

    assert nan == Edit("q", (0, 0, 0, 0), float("nan"))
    assert hash(nan) == hash(Edit("q", (0, 0, 0, 0), float("nan")))
    assert zero != negative


def test_a_case_out_of_range_names_the_axis():
    with pytest.raises(UsageError, match="seq_q=-3 is not accepted"):
        Case(seq_q=-3)


def test_shapes_and_scale_follow_the_axes():
    case = Case(batch=2, heads_q=6, heads_kv=2, seq_q=5, seq_k=7, dim_qk=16, dim_v=24)

    assert case.shape_q == (2, 6, 5, 16)
    assert case.shape_k == (2, 2, 7, 16)
    assert case.shape_v == (2, 2, 7, 24)
    assert case.shape_o == (2, 6, 5, 24)
    assert case.softmax_scale == 0.25
