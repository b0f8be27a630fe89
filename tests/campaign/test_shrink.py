from dataclasses import replace

import pytest

from flashverify.campaign.shrink import measure, shrink
from flashverify.case.case import Case, Edit, Grad, Storage, Values
from flashverify.case.mask import Mask
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


def test_nothing_simpler_fails_means_the_case_itself():
    assert smallest(BIG, lambda c: False)[0] == BIG


def test_trees_are_cut_with_their_queries():
    tree = Case(seq_q=6, seq_k=9, mask=Mask(tree=(-1, 0, 1, 1, 0, 4)))

    found, _ = smallest(tree, lambda c: c.mask.tree and len(c.mask.tree) >= 3)
    assert (found.seq_q, len(found.mask.tree)) == (3, 3)


def test_what_the_subject_needs_is_kept():
    found, _ = smallest(BIG, lambda c: c.dim_qk % 16 == 0 and c.dim_v % 16 == 0 and c.dim_qk == c.dim_v)

    assert (found.dim_qk, found.dim_v) == (16, 16)


def test_measure_orders_by_elements_first():
    assert measure(parse_case("fv1 seq_k=2")) < measure(parse_case("fv1 seq_k=3"))
    assert measure(replace(BIG, batch=3)) == measure(BIG)
