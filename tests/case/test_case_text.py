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
from flashverify.case.modifiers.relative_bias import RelativeBias
from flashverify.errors import UsageError

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
    "fv1 seq_q=3 seq_k=5 causal=top-left packed=0,1,3/0,2,5 bitmap=9,9 prefix=5,0": Case(
        seq_q=3,
        seq_k=5,
        mask=Mask(causal="top-left", packed=Packed((0, 1, 3), (0, 2, 5)), bitmap=Bitmap(9, 9), prefix_lengths=(5, 0)),
    ),
    "fv1 seq_q=3 seq_k=2 packed=0,0,3/0,1,1 blocks=16,16,0,0,1": Case(
        seq_q=3, seq_k=2, mask=Mask(packed=Packed((0, 0, 3), (0, 1, 1)), blocks=Blocks(16, 16, 0, 0, butterfly=True))
    ),
    "fv1 batch=2 seq_q=3 seq_k=5 tree=-1,0,0/-1,-1,1": Case(
        batch=2, seq_q=3, seq_k=5, mask=Mask(tree=((-1, 0, 0), (-1, -1, 1)))
    ),
    "fv1 seq_q=2 seq_k=3 packed=0,1,2/0,1,3 tree=-1,-1 blocks=16,32,9,1,0,1 bitmap=7,1,1": Case(
        seq_q=2,
        seq_k=3,
        mask=Mask(
            packed=Packed((0, 1, 2), (0, 1, 3)),
            tree=(-1, -1),
            blocks=Blocks(16, 32, 9, 1, each=True),
            bitmap=Bitmap(7, 1, each=True),
        ),
    ),
    "fv1 window=*,0 qlen=1 softcap=30 alibi=yes bias=head sink=yes dropout=0.5": Case(
        mask=Mask(window=(None, 0), query_lengths=(1,)),
        logits=Logits(softcap=30.0, alibi=True, bias="head", sink=True),
        dropout=0.5,
    ),
    "fv1 blocks=16,32,128,3 bitmap=7,1 layout=bshd gap=3 offset=1 expand=yes padding=nan page_size=16": Case(
        mask=Mask(blocks=Blocks(16, 32, 128, 3), bitmap=Bitmap(7, 1)),
        storage=Storage(layout="bshd", gap=3, offset=1, expand=True, padding="nan", page_size=16),
    ),
    "fv1 relative_bias=8,20,both": Case(logits=Logits(relative_bias=RelativeBias(8, 20, bidirectional=True))),
    "fv1 transposed=yes": Case(storage=Storage(transposed=True)),
    "fv1 alibi=wild strided=yes": Case(logits=Logits(alibi="wild"), storage=Storage(strided=True)),
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
def packings(draw, seq_q, seq_k):
    """Packed sequences in buffers of these sizes."""
    count = draw(st.integers(0, 3))
    cu = [(0, *sorted(draw(st.lists(st.integers(0, size), min_size=count, max_size=count)))) for size in (seq_q, seq_k)]
    return Packed(*cu)


@st.composite
def any_case(draw):
    batch, kv, group, seq_q = (
        draw(st.integers(0, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 6)),
    )
    seq_k = seq_q + draw(st.integers(0, 6))
    packed = draw(st.none() | packings(seq_q, seq_k))
    batch = batch if packed is None else 1
    nodes = range(seq_q) if packed is None else [n for rows, _ in packed.lengths() for n in range(rows)]
    tree = draw(st.none() | st.tuples(*(st.integers(-1, node - 1) for node in nodes)))
    if packed is not None and any(keys < rows for rows, keys in packed.lengths()):
        tree = None
    side = st.none() | st.integers(0, 9)
    lengths = lambda full: st.none() | st.tuples(*[st.integers(0, full)] * batch)  # noqa: E731
    plain = tree is None
    mask = Mask(
        causal=draw(st.sampled_from((None, "top-left", "bottom-right"))) if plain else None,
        window=draw(st.none() | st.tuples(side, side)) if plain else None,
        key_lengths=draw(lengths(seq_k)) if packed is None else None,
        query_lengths=draw(lengths(seq_q)) if packed is None else None,
        packed=packed,
        tree=tree,
        blocks=draw(
            st.none()
            | st.builds(
                Blocks,
                st.integers(1, 9),
                st.integers(1, 9),
                st.integers(0, 256),
                st.integers(0, 99),
                butterfly=st.booleans(),
                each=st.booleans(),
            )
        ),
        bitmap=draw(st.none() | st.builds(Bitmap, st.integers(0, 256), st.integers(0, 99), st.booleans())),
    )
    dtype = draw(st.sampled_from(DTYPES))
    bias, sink = draw(st.sampled_from((None, "full", "head", "shared"))), draw(st.booleans())
    alibi = draw(st.sampled_from((False, True, "wild")))
    relative = draw(st.sampled_from((None, RelativeBias(8, 20, bidirectional=True), RelativeBias(2, 2))))
    learned = {"bias": bias, "sink": sink, "slopes": alibi, "relative_bias": relative}
    absent = {name for name, there in learned.items() if not there}
    finite = st.floats(allow_nan=False, allow_infinity=False)
    edit = st.sampled_from([name for name in EDIT_TENSORS if name not in absent]).flatmap(
        lambda name: st.builds(Edit, st.just(name), st.just((0, 0, 0, 0)), finite if name in learned else st.floats())
    )
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
            alibi=alibi,
            bias=bias,
            sink=sink,
            relative_bias=relative,
        ),
        dropout=draw(st.floats(0, 1, exclude_max=True)),
        values=Values(
            regime=",".join(draw(st.lists(st.sampled_from(REGIMES), min_size=1, max_size=4))),
            seed=draw(st.integers(0, 2**64 - 1)),
            edits=tuple(draw(st.lists(edit, max_size=3))) if batch * seq_q * seq_k else (),
        ),
        storage=Storage(
            layout=draw(st.sampled_from(LAYOUTS)),
            gap=draw(st.integers(0, 4096)),
            offset=draw(st.integers(0, 4096)),
            expand=draw(st.booleans()),
            padding=draw(st.sampled_from(POISONS)),
            page_size=draw(st.none() | st.integers(1, 99)) if packed is None else None,
            strided=draw(st.booleans()),
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
