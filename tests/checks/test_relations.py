"""Relations between problems, and of one problem with itself: each has a subject that breaks it, and a clean control that does not."""

import dataclasses
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.checks.relations import SPEC
from flashverify.subjects import Contract, Gradients
from tests.checks.naive import SUPPORTS, attention, make
from tests.checks.test_engine import Wrapped

RELATIONS = SPEC.question_names
BF16 = dataclasses.replace(SUPPORTS, dtypes=("bf16", "fp32"), masks=("causal", "key_lengths", "tree", "bitmap"))
ROWS = parse_case("fv1 heads_q=2 heads_kv=1 seq_q=6 seq_k=9 dtype=bf16 seed=1")
CAUSAL = parse_case("fv1 heads_q=2 heads_kv=1 seq_q=5 seq_k=9 dtype=bf16 causal=bottom-right seed=1")
BITS = parse_case("fv1 batch=2 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dtype=fp32 bitmap=128,5,1 klen=9,5 seed=3")


def rounded(p, **changes):
    """The small attention over fp32 copies, O in the dtype of q; a tree is a chain, a bitmap is added."""
    wide = {name: getattr(p, name).float() for name in "qkv"}
    tree = p.case.mask.tree is not None
    mask = dataclasses.replace(p.case.mask, causal="bottom-right", tree=None) if tree else p.case.mask
    problem = dataclasses.replace(p, case=dataclasses.replace(p.case, mask=mask), **wide)
    o, lse = (attention if p.bitmap is None else masked)(problem, **changes)
    return o.to(p.q.dtype), lse


def masked(p):
    inside = torch.arange(p.case.seq_k) < p.key_lengths.view(-1, 1, 1, 1)
    see = p.bitmap & inside
    some = see.any(-1, keepdim=True)
    s = torch.where(see, (p.q @ torch.where(inside.mT, p.k, 0.0).mT) * p.scale, -math.inf)
    m = torch.where(some, s.amax(-1, keepdim=True), 0.0)
    w = torch.exp(s - m)
    total = torch.where(some, w.sum(-1, keepdim=True), 1.0)
    lse = torch.where(some, m + total.log(), -math.inf).squeeze(-1)
    return (w / total) @ torch.where(inside.mT, p.v, 0.0), lse


def subject(function=rounded, **fields):
    return make(function, **({"supports": BF16} | fields))


def broken(subject, case=ROWS, relations=RELATIONS):
    plan = Plan(checks=("relations",), questions={"relations": relations})
    return {(v.error, v.output) for v in judge_case(subject, case, plan).failures}


def by_itself(subject, case, relation):
    """What the relation finds is another problem that fails `accuracy`: its keys and its mask, as its text says them."""
    plan = Plan(checks=("relations",), questions={"relations": (relation,)})
    found = judge_case(subject, case, plan).failures
    assert {v.check for v in found} == {"accuracy"}
    for verdict in found:
        alone = judge_case(subject, parse_case(verdict.case), Plan.only("accuracy", case)).failures
        assert verdict.output in {v.output for v in alone}
    wanted = ("seq_k", "klen", "tree")
    return {" ".join(word for word in v.case.split() if word.split("=")[0] in wanted) for v in found}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", [ROWS, CAUSAL, BITS], ids=["rows", "causal", "bitmap"])
@pytest.mark.parametrize("promised", [True, None], ids=["bitwise", "within bounds"])
def test_a_correct_attention_breaks_no_relation(case, promised):
    assert broken(subject(contract=Contract(deterministic=promised)), case) == set()


@pytest.mark.slow
def test_every_relation_is_asked_of_some_case():
    asked = set()
    for case in (ROWS, CAUSAL, BITS):
        result = {
            name: judge_case(subject(), case, Plan(checks=("relations",), questions={"relations": (name,)}))
            for name in RELATIONS
        }
        asked |= {name for name, each in result.items() if each.verdicts}

    assert asked == set(RELATIONS)


def test_no_relation_is_asked_of_an_empty_problem_or_of_one_with_infinities():
    for text in ("fv1 dtype=fp32 seq_k=0", "fv1 dtype=fp32 seq_q=3 seq_k=3 edits=q:0,0,1,0:inf"):
        assert judge_case(subject(), parse_case(text), Plan(checks=("relations",))).verdicts == ()


def test_a_constant_on_the_path_of_v_breaks_its_doubling():
    def offset(p):
        o, lse = rounded(p)
        return (o.float() + 2.0**-7).to(o.dtype), lse

    assert broken(subject(offset), relations=("double-v",)) == {("double-v", "o")}


def test_an_lse_that_depends_on_v_breaks_its_doubling():
    def coupled(p):
        o, lse = rounded(p)
        return o, lse + 2.0**-20 * p.v.float().abs().sum()

    assert broken(subject(coupled), relations=("double-v",)) == {("double-v", "lse")}


def test_a_clamp_of_the_gradients_breaks_the_doubling_of_do():
    def backward(problem, g):
        return Gradients(g.dq, g.dk.clamp(-0.25, 0.25), g.dv)

    found = broken(Wrapped(backward=backward, inner=subject()), relations=("double-do",))

    assert found == {("double-do", "dk")}


class Gated(torch.autograd.Function):
    """The identity, whose backward doubles the gradient that is asked for where no other is."""

    @staticmethod
    def forward(ctx, *tensors):
        return tuple(x.clone() for x in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        return tuple(x if sum(ctx.needs_input_grad) > 1 else 2 * x for x in gradients)


@pytest.mark.parametrize("promised", [True, None], ids=["bitwise", "within bounds"])
def test_a_gradient_that_depends_on_which_others_are_asked_for_breaks_the_relation(promised):
    def gated(p):
        q, k, v = Gated.apply(p.q, p.k, p.v)
        return rounded(dataclasses.replace(p, q=q, k=k, v=v))

    found = broken(subject(gated, contract=Contract(deterministic=promised)), relations=("alone",))

    assert found == {("alone", "dq"), ("alone", "dk"), ("alone", "dv")}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (lambda found, wanted: {name: x for name, x in found.items() if name in wanted and name != "dv"}, {"dv"}),
        (lambda found, wanted: {name: x for name, x in found.items() if name in wanted or name == "dk"}, {"dk"}),
        (lambda found, wanted: {name: x[0] for name, x in found.items() if name in wanted}, {"dq", "dk", "dv"}),
        (lambda found, wanted: {name: x.double() for name, x in found.items() if name in wanted}, {"dq", "dk", "dv"}),
        (lambda found, wanted: {name: x * (1 + 2.0**-9) for name, x in found.items() if name in wanted}, set()),
        (lambda found, wanted: {name: x for name, x in found.items() if name in wanted}, set()),
    ],
    ids=["missing", "unasked", "shape", "dtype", "rounded otherwise", "as asked"],
)
def test_what_is_asked_for_is_computed_and_nothing_else(given, expected):
    class Choosy(Wrapped):
        def backward_of(self, problem, forward, wanted):
            g = self.inner.backward(problem, forward)
            return given({"dq": g.dq, "dk": g.dk, "dv": g.dv}, wanted)

    inner = subject(contract=Contract(deterministic=True))

    assert broken(Choosy(inner=inner), relations=("alone",)) == {("alone", name) for name in expected}


def test_the_gradient_of_v_is_asked_for_alone_beside_a_gradient_of_lse():
    case = parse_case("fv1 heads_q=2 heads_kv=1 seq_q=6 seq_k=9 dtype=bf16 dlse=yes seed=1")
    able = dataclasses.replace(BF16, dlse=True)

    assert broken(subject(supports=able), case, ("alone",)) == set()


def test_a_subject_that_cannot_be_told_what_is_wanted_is_not_asked():
    plan = Plan(checks=("relations",), questions={"relations": ("alone",)})

    assert judge_case(Wrapped(inner=subject()), ROWS, plan).verdicts == ()


def test_keys_behind_the_length_that_are_seen_break_the_relation():
    def blind(p):
        return attention(dataclasses.replace(p, key_lengths=None))

    case = parse_case("fv1 heads_q=2 heads_kv=1 seq_q=6 seq_k=9 dtype=fp32 seed=1")

    assert by_itself(make(blind), case, "appended-keys") == {"seq_k=46 klen=9"}


def test_keys_behind_the_length_that_spoil_a_row_only_where_they_repeat_one_break_the_relation():
    def repeats(p):
        o, lse = attention(p)
        return o, lse + float((p.k[:, :, -1] == p.k[:, :, 0]).all())

    case = parse_case("fv1 heads_q=2 heads_kv=1 seq_q=6 seq_k=9 dtype=fp32 seed=1")

    assert broken(make(repeats), case, ("appended-keys",)) == {("appended-keys", "lse")}


@pytest.mark.slow
def test_a_tree_that_is_off_by_one_is_wrong_by_itself():
    def shifted(p):
        return rounded(p, shift=int(p.case.mask.tree is not None))

    assert by_itself(subject(shifted), CAUSAL, "chain-tree") == {"seq_k=9 tree=-1,0,1,2,3"}


def test_a_weight_that_depends_on_the_number_of_its_key_breaks_permutation_and_split():
    def favours(p):
        return attention(dataclasses.replace(p, k=p.k * (1 + 2.0**-8 * torch.arange(p.case.seq_k).view(-1, 1))))

    case = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dtype=fp32 seed=1")

    assert {name for name, _ in broken(make(favours), case, ("key-permutation",))} == {"key-permutation"}
    assert by_itself(make(favours), case, "split-merge") == {"seq_k=2"}


def test_rows_that_are_open_in_a_part_of_the_keys_are_those_of_its_own_bitmap():
    def undefined(p):
        o, lse = masked(p)
        return o, lse.masked_fill(lse == -math.inf, math.nan)

    open_rows = Contract(empty_row_o=None, empty_row_lse=None)
    case = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=9 seq_k=9 dtype=fp32 bitmap=40,2,1 klen=9 seed=4")

    assert broken(make(undefined, supports=BF16, contract=open_rows), case, ("split-merge",)) == set()


def test_weights_that_are_no_softmax_break_the_shift():
    def saturated(p):
        return attention(dataclasses.replace(p, q=p.q.clamp(max=0.5)))

    case = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dtype=fp32 regime=tiny seed=1")

    assert broken(make(saturated), case, ("lse-shift",)) == {("lse-shift", "lse")}


def test_a_gradient_that_is_not_linear_in_do_breaks_linearity():
    def backward(problem, g):
        return Gradients(g.dq, g.dk, g.dv * (1 + 2.0**-10 * g.dv.abs().mean()))

    case = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dtype=fp32 seed=1")

    assert broken(Wrapped(backward=backward), case, ("linear-do",)) == {("linear-do", "dv")}


def shifted(lse):
    """The LSE with every row but the first moved."""
    return torch.cat([lse[..., :1], lse[..., 1:] + 5], -1)
