import pytest

from flashverify.campaign.shrink import masks as mask_shrinks
from flashverify.campaign.shrink.shrinker import measure, shrink
from flashverify.case.case import Case, Edit, Grad, Storage, Values
from flashverify.case.masks.mask import Mask
from flashverify.case.masks.tree import TREE, has_entry_trees
from flashverify.case.text import parse_case

BIG = Case(
    batch=3,
    heads_q=24,
    heads_kv=2,
    seq_q=257,
    seq_k=389,
    dim_qk=128,
    dim_v=64,
    dtype="bf16",
    scale=-0.3,
    mask=Mask(causal="bottom-right", window=(31, 5), key_lengths=(389, 17, 200), query_lengths=(3, 257, 0)),
    values=Values(
        regime="outlier", seed=99, edits=(Edit("q", (2, 3, 200, 100), float("nan")), Edit("v", (0, 0, 0, 0), 2.0))
    ),
    storage=Storage(layout="bshd", gap=8, offset=3, padding="nan"),
    grad=Grad(do="expanded", dlse=True),
)


def smallest(case, fails):
    steps, candidate, yielded = shrink(case), None, []
    try:
        candidate = next(steps)
        while True:
            yielded.append(candidate)
            candidate = steps.send(fails(candidate))
    except StopIteration as end:
        return end.value, yielded


@pytest.mark.parametrize(
    ("fails", "text"),
    [
        (lambda c: True, "fv1 dim_qk=1 dim_v=1 dtype=bf16 regime=zeros backward=no"),
        (lambda c: c.seq_k >= 17, "fv1 seq_k=17 dim_qk=1 dim_v=1 dtype=bf16 regime=zeros backward=no"),
        (lambda c: c.heads_q // c.heads_kv >= 3, "fv1 heads_q=3 dim_qk=1 dim_v=1 dtype=bf16 regime=zeros backward=no"),
        (
            lambda c: c.mask.causal and c.seq_q > 4 and c.seq_k > c.seq_q,
            "fv1 seq_q=5 seq_k=6 dim_qk=1 dim_v=1 dtype=bf16 causal=bottom-right regime=zeros backward=no",
        ),
        (
            lambda c: c.mask.key_lengths and c.mask.key_lengths[0] < c.seq_k - 2 and c.grad.backward,
            "fv1 seq_k=3 dim_qk=1 dim_v=1 dtype=bf16 klen=0 regime=zeros",
        ),
        (
            lambda c: c.values.regime == "outlier" and c.dim_qk >= 40,
            "fv1 dim_qk=40 dim_v=1 dtype=bf16 regime=outlier backward=no",
        ),
        (
            lambda c: any(e.tensor == "q" for e in c.values.edits),
            "fv1 batch=3 heads_q=4 seq_q=201 dim_qk=104 dim_v=1 dtype=bf16 regime=zeros edits=q:2,3,200,100:nan backward=no",
        ),
        (
            lambda c: c.mask.window and c.mask.window[0] is not None,
            "fv1 dim_qk=1 dim_v=1 dtype=bf16 window=0,* regime=zeros backward=no",
        ),
        (lambda c: c.storage.offset % 8, "fv1 dim_qk=1 dim_v=1 dtype=bf16 regime=zeros offset=1 backward=no"),
    ],
)
def test_it_ends_at_the_minimum(fails, text):
    found, yielded = smallest(BIG, fails)

    assert text == str(found)
    assert fails(found)
    assert len(set(yielded)) == len(yielded)
    assert len(yielded) < 400


RICH = {
    "packed": "heads_q=4 heads_kv=2 seq_q=70 seq_k=90 dim_qk=64 dim_v=64 packed=0,20,20,50,61/0,9,31,31,80 causal=bottom-right "
    "bias=full sink=yes dropout=0.9 regime=ties seed=77 layout=bshd gap=8 padding=nan",
    "packed tree": "heads_q=2 seq_q=9 seq_k=30 packed=0,3,4,8/0,10,11,25 tree=-1,0,0,-1,-1,0,1,1 softcap=30 seed=5",
    "sparse": "batch=2 heads_q=4 heads_kv=2 seq_q=70 seq_k=90 blocks=64,32,100,9,1,1 bitmap=100,9,1 window=9,4 alibi=yes seed=9",
    "prefix": "batch=3 heads_q=4 heads_kv=2 seq_q=70 seq_k=90 causal=bottom-right window=40,* klen=90,33,70 prefix=50,17,64 seed=4",
    "packed prefix": "heads_q=2 seq_q=70 seq_k=90 packed=0,20,20,50,61/0,9,31,31,80 causal=top-left prefix=9,30,5,49 seed=4",
    "paged": "batch=3 heads_q=8 heads_kv=2 seq_q=3 seq_k=90 klen=90,0,33 page_size=16 softcap=50 bias=head backward=no seed=3",
}
PLAIN = "dim_qk=1 dim_v=1 {} regime=zeros backward=no"


def packed(case):
    return case.mask.packed.lengths() if case.mask.packed else ()


@pytest.mark.parametrize(
    ("start", "fails", "text"),
    [
        ("packed", lambda c: True, PLAIN.format("")),
        ("packed", lambda c: any(rows == 0 for rows, _ in packed(c)), PLAIN.format("packed=0,0/0,0")),
        ("packed", lambda c: any(rows == 0 < keys for rows, keys in packed(c)), PLAIN.format("packed=0,0/0,1")),
        (
            "packed",
            lambda c: sum(rows > 0 for rows, _ in packed(c)) > 1,
            "seq_q=2 " + PLAIN.format("packed=0,1,2/0,0,0"),
        ),
        (
            "prefix",
            lambda c: max(c.mask.prefix_lengths or (0,)) >= 17,
            "seq_k=17 " + PLAIN.format("causal=bottom-right prefix=17"),
        ),
        (
            "packed prefix",
            lambda c: c.mask.packed and c.mask.prefix_lengths and c.mask.prefix_lengths[-1] >= 3,
            "seq_k=3 " + PLAIN.format("causal=top-left packed=0,0/0,3 prefix=3"),
        ),
        (
            "packed",
            lambda c: c.mask.causal and any(0 < keys < rows for rows, keys in packed(c) or [(c.seq_q, c.seq_k)]),
            "seq_q=2 " + PLAIN.format("causal=bottom-right"),
        ),
        (
            "packed",
            lambda c: c.mask.packed and c.mask.packed.cu_q[-1] < c.seq_q and packed(c)[-1][0] > 0,
            "seq_q=2 " + PLAIN.format("packed=0,1/0,0"),
        ),
        ("packed", lambda c: c.logits.bias and c.dropout, PLAIN.format("bias=shared dropout=0.5")),
        (
            "packed",
            lambda c: c.logits.sink and c.storage.gap,
            PLAIN.format("sink=yes").replace(" backward", " gap=1 backward"),
        ),
        (
            "packed tree",
            lambda c: (
                len(packed(c)) > 1
                and any(tree.count(0) > 1 for tree in TREE.per_sequence(c.mask.tree or (), c.mask) or ())
            ),
            "seq_q=3 seq_k=3 " + PLAIN.format("packed=0,3,3/0,3,3 tree=-1,0,0"),
        ),
        ("packed tree", lambda c: c.mask.tree and 0 in c.mask.tree, "seq_q=2 seq_k=2 " + PLAIN.format("tree=-1,0")),
        ("sparse", lambda c: c.mask.blocks, PLAIN.format("blocks=16,16,256,0")),
        ("sparse", lambda c: c.mask.blocks and c.mask.blocks.live < 9, PLAIN.format("blocks=16,16,0,0")),
        ("sparse", lambda c: c.mask.blocks and c.mask.blocks.butterfly, PLAIN.format("blocks=16,16,0,0,1")),
        ("sparse", lambda c: c.mask.blocks and c.mask.blocks.rows > 16, PLAIN.format("blocks=64,16,256,0")),
        ("sparse", lambda c: c.mask.bitmap and c.mask.bitmap.each, PLAIN.format("bitmap=100,0,1")),
        ("sparse", lambda c: c.mask.bitmap and c.mask.blocks and c.seq_k > 16, None),
        ("sparse", lambda c: c.logits.alibi and c.heads_q > 1, "heads_q=2 " + PLAIN.format("alibi=yes")),
        (
            "paged",
            lambda c: c.storage.page_size and c.seq_k > 16,
            "seq_k=17 " + PLAIN.format("").replace("backward", "page_size=16 backward"),
        ),
        ("paged", lambda c: c.logits.softcap and c.logits.bias, PLAIN.format("softcap=50 bias=shared")),
    ],
)
def test_optional_parts_end_at_their_minimum(start, fails, text):
    found, yielded = smallest(parse_case(f"fv1 {RICH[start]}"), fails)

    assert fails(found)
    assert text is None or " ".join(text.split()) == str(found).removeprefix("fv1 ")
    assert len(set(yielded)) == len(yielded) < 500


def test_a_packed_problem_becomes_the_dense_one_of_each_sequence():
    case = parse_case("fv1 seq_q=9 seq_k=30 packed=0,3,4,8/0,10,11,25 tree=-1,0,0,-1,-1,0,1,1 alibi=yes")
    dense = {str(c) for c in mask_shrinks.packed(case) if c is not None and c.mask.packed is None}

    assert dense == {
        "fv1 seq_q=3 seq_k=10 tree=-1,0,0 alibi=yes",
        "fv1 tree=-1 alibi=yes",
        "fv1 seq_q=4 seq_k=14 tree=-1,0,1,1 alibi=yes",
    }


def test_nothing_simpler_fails_means_the_case_itself():
    assert smallest(BIG, lambda c: False)[0] == BIG


def test_trees_are_cut_with_their_queries():
    tree = Case(seq_q=6, seq_k=9, mask=Mask(tree=(-1, 0, 1, 1, 0, 4)))

    found, _ = smallest(tree, lambda c: c.mask.tree and len(c.mask.tree) >= 3)
    assert (found.seq_q, len(found.mask.tree)) == (3, 3)


def test_of_the_trees_of_a_batch_the_one_that_matters_is_left():
    case = Case(batch=3, seq_q=3, seq_k=4, mask=Mask(tree=((-1, 0, 0), (-1, -1, 1), (-1, 0, 1))))

    found, _ = smallest(case, lambda c: (-1, -1, 1) in ((c.mask.tree,), c.mask.tree)[has_entry_trees(c.mask.tree)])
    assert (found.batch, found.mask.tree) == (1, (-1, -1, 1))
    apart, _ = smallest(case, lambda c: has_entry_trees(c.mask.tree) and c.mask.tree[0] != c.mask.tree[1])
    assert (apart.batch, apart.seq_q, apart.mask.tree) == (2, 2, ((-1, 0), (-1, -1)))


def test_what_the_subject_needs_is_kept():
    found, _ = smallest(BIG, lambda c: c.dim_qk % 16 == 0 and c.dim_v % 16 == 0 and c.dim_qk == c.dim_v)

    assert (found.dim_qk, found.dim_v) == (16, 16)


@pytest.mark.parametrize(
    ("simpler", "other"),
    [
        ("fv1 seq_k=2", "fv1 seq_k=3"),
        ("fv1 seq_k=2 causal=top-left regime=outlier", "fv1 seq_k=3"),  # elements decide before the text
        ("fv1 seed=9", "fv1 seed=10"),
        ("fv1 seed=10", "fv1 seed=11"),
    ],
)
def test_measure_orders_by_elements_then_by_the_text(simpler, other):
    assert measure(parse_case(simpler)) < measure(parse_case(other))
