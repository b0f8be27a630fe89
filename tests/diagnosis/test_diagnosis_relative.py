"""Each defect of a relative bias, planted in an independent implementation, is named."""

import dataclasses

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.observe import look
from flashverify_oracles import t5_buckets
from tests.diagnosis.explaining import explained
from tests.diagnosis.planted import LOG2E, Plain, planted
from tests.diagnosis.test_diagnosis import CASE, FORWARD, named


def _reach(problem):
    return len(problem.distance_buckets) // 2


def _both(problem):
    own, after = problem.distance_buckets[_reach(problem) :][:2].tolist()
    return own != after


def _least(problem):
    """The least largest distance that a table of this size may have."""
    count = problem.relative_bias.shape[-1]
    return (count // 2 if _both(problem) else count) // 2 + 1


def _by_buckets(attention, problem, reach, both):
    """The buckets of a table with another reach, or with other directions."""
    buckets = t5_buckets(problem.relative_bias.shape[-1], reach, bidirectional=both).long()
    return buckets[attention.relative_distance(attention.distance(problem), reach) + reach]


def by_rows(self, ds, buckets, count):
    """Pairs farther apart than there are rows are added to the bucket of that distance."""
    n, m = ds.shape[2:]
    distance = (torch.arange(m) - torch.arange(n)[:, None]).clamp(-n, n)
    at = dict(
        zip((torch.arange(m) - torch.arange(n)[:, None]).flatten().tolist(), buckets.flatten().tolist(), strict=False)
    )
    moved = torch.tensor([[at[int(x)] for x in row] for row in distance])
    return Plain.table_gradient(self, ds, moved[None, None], count)


def near_pairs_of_the_first(self, ds, buckets, count):
    """Of further sequences the pairs whose distance the table clips alone."""
    n, m = ds.shape[2:]
    near = (torch.arange(m) - torch.arange(n)[:, None]).abs() < 2
    others = (torch.arange(ds.shape[0]) > 0)[:, None, None, None]
    return Plain.table_gradient(self, ds.masked_fill(near & others, 0.0), buckets, count)


def turned(self, problem):
    """Rows are moved by queries - keys."""
    return Plain.distance(self, problem) + 2 * (problem.k.shape[2] - problem.q.shape[2])


def of_the_buffers(self, problem):
    return Plain.distance(self, dataclasses.replace(problem, query_lengths=None, key_lengths=None))


def in_the_gradient(distance):
    """The backward alone measures distances so."""
    return {"backward": lambda s, p, f: planted(distance=distance).backward(p, f)}


OF_PAIRS = [
    ("drelative-bias-first-sequence", CASE + "batch=2 relative_bias=2,2", {"table_gradient": near_pairs_of_the_first}),
    (
        "drelative-bias-reach",
        CASE.replace("seq_q=5", "seq_q=2") + "relative_bias=32,128,both",
        {"table_gradient": by_rows},
    ),
]
DEFECTS = [
    ("relative-bias-missing", FORWARD + "relative_bias=6,4", {"table": lambda s, table: 0 * table}),
    ("relative-bias-without-log2e", FORWARD + "relative_bias=6,4", {"table": lambda s, table: table / LOG2E}),
    ("relative-bias-sign", CASE + "relative_bias=6,4", {"table": lambda s, table: -table}),
    (
        "relative-bias-one-direction",
        FORWARD + "relative_bias=8,20,both",
        {"buckets": lambda s, p: _by_buckets(s, p, _reach(p), False)},
    ),
    (
        "relative-bias-distance-sign",
        FORWARD + "relative_bias=8,20,both",
        {"relative_distance": lambda s, d, reach: (-d).clamp(-reach, reach)},
    ),
    (
        "alibi-without-shift",  # ALiBi takes the same distances
        FORWARD + "relative_bias=8,20,both causal=bottom-right",
        {
            "distance": lambda s, p: (
                torch.arange(p.k.shape[2]) - torch.arange(p.q.shape[2])[:, None] + 0 * p.q[:, 0, :1, :1].long()
            )
        },
    ),
    ("alibi-shift-sign", FORWARD + "heads_q=2 alibi=yes causal=bottom-right", {"distance": turned}),
    ("relative-bias-shift-sign", FORWARD + "relative_bias=8,20,both causal=bottom-right", {"distance": turned}),
    (
        "relative-bias-of-the-buffers",
        FORWARD + "relative_bias=8,20,both causal=bottom-right klen=6",
        {"distance": of_the_buffers},
    ),
    (
        "drelative-bias-shift-sign",
        CASE + "relative_bias=8,20,both causal=bottom-right",
        in_the_gradient(turned),
    ),
    (
        "drelative-bias-of-the-buffers",
        CASE + "relative_bias=8,20,both causal=bottom-right qlen=3",
        in_the_gradient(of_the_buffers),
    ),
    (
        "relative-bias-clipped-early",
        FORWARD + "relative_bias=6,4",
        {"relative_distance": lambda s, d, reach: d.clamp(1 - reach, reach - 1)},
    ),
    (
        "relative-bias-max-distance-off-by-one",
        FORWARD + "relative_bias=6,5",
        {"buckets": lambda s, p: _by_buckets(s, p, max(_reach(p) - 1, _least(p)), _both(p))},
    ),
    (
        "relative-bias-off-by-one",
        FORWARD + "relative_bias=8,20,both",
        {"relative_distance": lambda s, d, reach: (d + 1).clamp(-reach, reach)},
    ),
    (
        "relative-bias-first-head",
        FORWARD + "relative_bias=6,4 heads_q=2",
        {"table": lambda s, table: table[:1].expand_as(table)},
    ),
    (
        "relative-bias-of-kv-head",
        FORWARD + "relative_bias=6,4 heads_q=4 heads_kv=2",
        {"table": lambda s, table: table[torch.tensor([0, 0, 1, 1])]},
    ),
    (
        "relative-bias-of-next-head",
        FORWARD + "relative_bias=6,4 heads_q=3 heads_kv=3",
        {"table": lambda s, table: table.roll(-1, 0)},
    ),
    (
        "relative-bias-transposed",
        FORWARD + "relative_bias=6,4 heads_q=2",
        {"table": lambda s, table: table.reshape(6, 2).T},
    ),
    (
        "drelative-bias-first-sequence",
        CASE + "relative_bias=6,4 batch=3",
        {"table_gradient": lambda s, ds, of, count: Plain.table_gradient(s, ds[:1], of[:1], count)},
    ),
    (
        "drelative-bias-last-sequence",
        CASE + "relative_bias=6,4 batch=3",
        {"table_gradient": lambda s, ds, of, count: Plain.table_gradient(s, ds[-1:], of[-1:], count)},
    ),
]


EVERY = [pytest.param(*x, id=x[0]) for x in DEFECTS]
_WHOLE = ("relative-bias-missing", "alibi-without-shift")
"""They are put to the whole diagnosis, which takes seconds; the others to their own semantics alone."""


@pytest.mark.parametrize(("name", "text", "defect"), [x for x in EVERY if x.id not in _WHOLE])
def test_a_planted_defect_is_what_its_semantics_expects(name, text, defect):
    scene = look(planted(**defect), parse_case(text))
    assert scene.failing(), "the planted defect does not show"
    explained(name, scene)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "text", "defect"),
    [pytest.param(*x.values, id=x.id, marks=[pytest.mark.thorough] * (x.id not in _WHOLE)) for x in EVERY],
)
def test_a_planted_defect_is_named(name, text, defect):
    found = named(planted(**defect), text)
    assert name == found.name or (name in found.also and found.name), found


@pytest.mark.parametrize(("name", "text", "defect"), OF_PAIRS, ids=[name for name, *_ in OF_PAIRS])
def test_a_gradient_that_some_pairs_do_not_reach_is_what_its_semantics_expects(name, text, defect):
    assert explained(name, look(planted(**defect), parse_case(text)))
