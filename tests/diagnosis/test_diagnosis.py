"""Each defect, planted in an independent implementation, is named; what is right or unexplainable is not."""

import math

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.catalogue import NAMES, SEMANTICS
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.observe import look
from tests.diagnosis.explaining import explained
from tests.diagnosis.planted import LOG2E, Plain, planted

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 "
FORWARD = CASE + "backward=no "


def first_failure(subject, case, check="accuracy"):
    return next((v for v in judge_case(subject, case, Plan.only(check, case)).failures), None)


def named(subject, text, check="accuracy", seconds=300):
    case = parse_case(text)
    verdict = first_failure(subject, case, check)
    assert verdict is not None, "the planted defect does not show"
    return diagnose(subject, case, verdict, seconds=seconds)  # by default it does not depend on how busy the machine is


def not_rescaled(self, o, z, v, lse):
    """The accumulator of a running softmax over tiles of 16 keys, never rescaled."""
    top = torch.full_like(z[..., :1], -torch.inf)
    acc, total = torch.zeros_like(o), torch.zeros_like(top)
    for start in range(0, z.shape[-1], self.tile):
        part = z[..., start : start + self.tile]
        new = torch.maximum(top, part.amax(-1, keepdim=True))
        pivot = torch.where(new == -torch.inf, 0.0, new)
        p = (part - pivot).exp()
        total = total * torch.where(top == -torch.inf, 0.0, (top - pivot).exp()) + p.sum(-1, keepdim=True)
        acc = acc + p @ v[..., start : start + self.tile, :]
        top = new
    return acc / torch.where(total == 0, 1.0, total)


def parent(self, parents, node):
    yield node
    if parents[node] >= 0:
        yield parents[node]


def siblings(self, parents, node):
    yield from Plain.ancestors(self, parents, node)
    yield from (other for other in range(node) if parents[other] == parents[node])


def nodes_before(self, parents, node):
    return range(node + 1)


def without_left(self, i, j, left, right):
    return Plain.window(self, i, j, None, right)


def empty_nan(self, o, z, v, lse):
    return torch.where(torch.isfinite(lse).unsqueeze(-1), o, math.nan)


PREFIXES = "batch=3 causal=top-left prefix=4,2,7"
DEFECTS = [
    ("causal-one-key-more", FORWARD + "causal=top-left", {"causal": lambda s, i, j: j <= i + 1}),
    (  # the mask is wrong, and the walk over the keys still ends with the row's tile
        "causal-one-key-more",
        "fv1 seq_q=18 seq_k=18 dim_qk=8 dim_v=8 dtype=fp32 backward=no causal=top-left",
        {"causal": lambda s, i, j: (j <= i + 1) & (j < (i // 16 + 1) * 16)},
    ),
    ("causal-one-key-less", FORWARD + "causal=top-left", {"causal": lambda s, i, j: j < i}),
    ("causal-ignored", FORWARD + "causal=bottom-right", {"causal": lambda s, i, j: j >= 0}),
    ("causal-top-left", FORWARD + "causal=bottom-right", {"shift": lambda s, p, n, m: 0}),
    ("causal-bottom-right", FORWARD + "causal=top-left", {"shift": lambda s, p, n, m: m - n}),
    ("prefix-ignored", FORWARD + "causal=top-left prefix=4", {"prefix": lambda s, j, n, b: j < 0}),
    ("prefix-one-key-more", FORWARD + "causal=top-left prefix=4", {"prefix": lambda s, j, n, b: j <= n[b]}),
    ("prefix-one-key-less", FORWARD + "causal=top-left prefix=4", {"prefix": lambda s, j, n, b: j < n[b] - 1}),
    ("prefix-of-first-sequence", FORWARD + PREFIXES, {"prefix": lambda s, j, n, b: j < n[0]}),
    ("prefix-of-next-sequence", FORWARD + PREFIXES, {"prefix": lambda s, j, n, b: j < n[min(b + 1, len(n) - 1)]}),
    (
        "window-left-one-narrower",
        FORWARD + "window=2,1",
        {"window": lambda s, i, j, a, b: (i - j < a) & (j - i <= b)},
    ),
    (
        "window-right-one-wider",
        FORWARD + "window=2,1",
        {"window": lambda s, i, j, a, b: (i - j <= a) & (j - i <= b + 1)},
    ),
    ("window-left-ignored", FORWARD + "window=1,*", {"window": without_left}),
    ("window-misaligned", FORWARD + "causal=bottom-right window=2,*", {"window_shift": lambda s, p, n, m: 0}),
    ("last-key-missing", FORWARD + "klen=6", {"keys": lambda s, n: n - 1}),
    ("key-lengths-ignored", FORWARD + "klen=3 padding=dirt", {"keys": lambda s, n: 1 << 30}),
    ("first-key-missing", FORWARD, {"drop_keys": lambda s, see: torch.cat([see[..., :1] & False, see[..., 1:]], -1)}),
    ("tree-parents-only", FORWARD + "tree=-1,0,1,1,3", {"ancestors": parent}),
    ("tree-siblings", FORWARD + "tree=-1,0,0,1,1", {"ancestors": siblings}),
    ("tree-of-the-first-entry", FORWARD + "batch=2 tree=-1,0,0,1,1/-1,0,1,1,3", {"parents": lambda s, t, n: t[0]}),
    ("tree-as-chain", FORWARD + "tree=-1,0,0,1,1", {"ancestors": nodes_before}),
    ("bitmap-inverted", FORWARD + "bitmap=128,3", {"pattern": lambda s, p, bits: ~bits}),
    (
        "blocks-transposed",
        FORWARD.replace("seq_q=5 seq_k=7", "seq_q=40 seq_k=40") + "blocks=16,16,128,4",
        {"live": lambda s, p, b: b.mT if b.shape[2] == b.shape[3] else b},
    ),
    ("scale-missing", FORWARD, {"scale": lambda s, p: 1.0}),
    ("scale-squared", FORWARD + "scale=0.5", {"scale": lambda s, p: p.scale**2}),
    ("scale-slightly-off", FORWARD, {"scale": lambda s, p: p.scale * 1.001}),
    ("log2e-twice", FORWARD, {"scale": lambda s, p: p.scale * LOG2E}),
    ("lse-base-2", FORWARD, {"lse": lambda s, lse, without_sink: lse * LOG2E}),
    ("alpha-not-applied", FORWARD.replace("seq_k=7", "seq_k=40"), {"output": not_rescaled}),
    (
        "not-normalised",
        FORWARD,
        {"output": lambda s, o, z, v, lse: o * (lse - z.amax(-1)).nan_to_num(0, 0, 0).exp().unsqueeze(-1)},
    ),
    ("empty-rows-nan", FORWARD + "causal=bottom-right klen=2", {"output": empty_nan}),
    ("empty-rows-nan", FORWARD.replace("seq_k=7", "seq_k=0"), {"output": empty_nan}),
    ("softcap-missing", FORWARD + "softcap=1", {"cap": lambda s, z, cap: z}),
    ("softcap-slope-missing", CASE + "softcap=1", {"cap_slope": lambda s, z, cap: torch.ones_like(z)}),
    ("bias-without-log2e", FORWARD + "bias=full", {"add_bias": lambda s, z, b: z + b / LOG2E}),
    ("alibi-signed-distance", FORWARD + "alibi=yes", {"alibi": lambda s, x: x}),
    (
        "sink-missing",
        FORWARD + "sink=yes",
        {"lse": lambda s, lse, without_sink: without_sink},
    ),
    ("sink-first-head", FORWARD + "sink=yes heads_q=2", {"sinks": lambda s, sink: sink[:1].expand_as(sink)}),
    ("causal-not-asked-for", FORWARD, {"drop_keys": lambda s, see: see.tril()}),
    (
        "keys-as-many-as-queries",
        FORWARD,
        {"drop_keys": lambda s, see: see & (torch.arange(see.shape[3]) < see.shape[2])},
    ),
    (
        "window-ignored-for-one-row",
        FORWARD.replace("seq_q=5", "seq_q=1") + "window=*,2",
        {"window": lambda s, i, j, a, b: Plain.window(s, i, j, a, b) | (len(i) == 1)},
    ),
    (
        "head-modulo",
        FORWARD + "heads_q=6 heads_kv=3",
        {"kv_head": lambda s, h, group, heads: h % heads},
    ),
    ("delta-missing", CASE, {"delta_factor": 0.0}),
    ("delta-sign", CASE, {"delta_factor": -1.0}),
    ("gradient-without-scale", CASE, {"dk_factor": lambda s, p: 1 / p.scale}),
    ("gradient-twice", CASE, {"dq_factor": lambda s, p: 2.0}),
    (
        "group-last-member-only",
        CASE + "heads_q=2",
        {"group_sum": lambda s, x, group: x[:, group - 1 :: group]},
    ),
    ("backward-lse-base", CASE, {"backward_lse": lambda s, lse: lse / LOG2E}),
    ("weights-unmasked", CASE + "bitmap=128,3", {"backward_see": lambda s, see: torch.ones_like(see)}),
    ("dropout-inverted", FORWARD + "dropout=0.5", {"kept": lambda s, p, keep: 1 - keep}),
    ("dropout-factor-missing", FORWARD + "dropout=0.25", {"kept": lambda s, p, keep: keep * (1 - p.dropout_p)}),
]


EVERY = [pytest.param(*x, id=f"{x[0]}-{n}") for n, x in enumerate(DEFECTS)]
_WHOLE = 8
"""One defect in so many is put to the whole diagnosis, which takes seconds, and one in twice as many in `make test`."""
_COSTLY = ("empty-rows-nan-32", "backward-lse-base-48")
"""A whole diagnosis of one of them takes as long as three others."""


@pytest.mark.parametrize(
    ("name", "text", "defect"), [x for n, x in enumerate(EVERY) if n % (2 * _WHOLE) or x.id in _COSTLY]
)
def test_a_planted_defect_is_what_its_semantics_expects(name, text, defect):
    scene = look(planted(**defect), parse_case(text))
    assert scene.failing(), "the planted defect does not show"
    explained(name, scene)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "text", "defect"),
    [
        pytest.param(*x.values, id=x.id, marks=[pytest.mark.thorough] * (n % (2 * _WHOLE) > 0 or x.id in _COSTLY))
        for n, x in enumerate(EVERY)
    ],
)
def test_a_planted_defect_is_named(name, text, defect):
    found = named(planted(**defect), text)
    assert name == found.name or (name in found.also and found.name), found
    assert found.sentence.endswith(".")
    assert found.place


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "text", [CASE, CASE + "causal=bottom-right window=2,1 heads_q=2", CASE + "dropout=0.5 sink=yes"]
)
def test_a_right_subject_fails_nowhere_and_is_not_diagnosed(text):
    case = parse_case(text)
    assert first_failure(Plain(), case) is None
    assert not look(Plain(), case).failing()
    verdict = judge_case(Plain(), case, Plan.only("accuracy", case)).verdicts[0]
    assert diagnose(Plain(), case, verdict, seconds=1.0).name == ""


@pytest.mark.thorough
def test_two_names_are_told_apart_by_one_part_more_in_the_mask():
    """Without another part, a bitmap that is ignored and weights without a mask are the same."""
    found = named(planted(backward_see=lambda self, see: torch.ones_like(see)), CASE + "bitmap=128,3")
    assert (found.name, found.also) == ("weights-unmasked", ())


@pytest.mark.slow
def test_noise_has_a_place_and_no_name():
    def noisy(self, o, z, v, lse):
        o = o.clone()
        o[:, :, -1, 2] += 0.125 * torch.sin(1e3 * o[:, :, -1, 0])
        return o

    found = named(planted(output=noisy), FORWARD, seconds=5)
    assert found.name == ""
    assert "no known wrong semantics" in found.sentence.lower()
    assert "related cases fail" in found.sentence
    assert "row 4 of 5" in found.place
    assert "channel 2 of 8" in found.place
    assert "right: lse" in found.place


@pytest.mark.slow
@pytest.mark.thorough
def test_two_defects_at_once_are_not_taken_for_one():
    both = {"causal": lambda s, i, j: j <= i + 1, "scale": lambda s, p: p.scale * 2}
    assert named(planted(**both), FORWARD + "causal=top-left", seconds=4).name == ""


def test_names_are_unique_and_sentences_plain():
    assert len(set(NAMES)) == len(NAMES) >= 35
    for semantics in SEMANTICS:
        assert semantics.sentence[0].islower() or semantics.sentence.startswith(("O ", "ALiBi"))
        assert not semantics.sentence.endswith(".")
