"""The relation `hidden-keys`: leaks too small for the bounds of ordinary values are found, and correct subjects are left alone."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.checks.relations import hidden
from flashverify.mutants import Mutant, build_mutant
from flashverify.subjects import Contract, Gradients, load_subject
from tests.checks.test_engine import Wrapped
from tests.checks.test_relations import BF16, BITS, CAUSAL, rounded, subject

PLAN = Plan(checks=("relations",), questions={"relations": ("hidden-keys",)})
FP32 = dataclasses.replace(CAUSAL, dtype="fp32")
EVERY_DTYPE = dataclasses.replace(BF16, dtypes=("fp16", "bf16", "fp32"))


def found(subject, case, plan=PLAN):
    return {(v.check, v.error, v.output) for v in judge_case(subject, case, plan).failures}


def leaking(weight):
    """O with the last key's V, which most rows do not see, at a tiny weight."""

    def function(p):
        o, lse = rounded(p)
        leak = p.v.float().repeat_interleave(p.case.heads_q // p.case.heads_kv, 1)[:, :, -1:]
        return (o.float() + weight * leak).to(o.dtype), lse

    return subject(function)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "weight"), [(CAUSAL, 2.0**-90), (FP32, 2.0**-40)], ids=["bf16-2^-90", "fp32-2^-40"])
def test_a_leak_that_every_other_check_takes_for_rounding_is_found(case, weight):
    assert found(leaking(weight), case, Plan.run()) == {("relations", "hidden-keys", "o")}


@pytest.mark.parametrize("scale", [0.35, pytest.param(-0.35, marks=pytest.mark.thorough)])
def test_a_mask_that_subtracts_a_number_loses_to_a_large_logit(scale):
    def additive(p):
        k, v = (x.repeat_interleave(p.case.heads_q // p.case.heads_kv, 1) for x in (p.k, p.v))
        rows, keys = torch.arange(p.case.seq_q).view(-1, 1), torch.arange(p.case.seq_k)
        hidden_pairs = keys > rows + p.case.seq_k - p.case.seq_q
        s = (p.q @ k.mT) * p.scale - 1e4 * hidden_pairs
        return torch.softmax(s, -1) @ v, s.logsumexp(-1)

    case = parse_case("fv1 seq_q=2 seq_k=2 dtype=fp32 causal=bottom-right seed=1")
    case = dataclasses.replace(case, scale=scale)  # one row does not see a key

    assert found(subject(additive), case, Plan.run()) >= {("relations", "hidden-keys", name) for name in ("o", "lse")}


def test_a_gradient_of_q_that_takes_a_masked_key_is_found():
    def backward(problem, g):
        return Gradients(g.dq + 2.0**-40 * problem.k[:, :, -1:].repeat_interleave(2, 1), g.dk, g.dv)

    assert found(Wrapped(backward=backward, inner=subject()), FP32) == {("relations", "hidden-keys", "dq")}


@pytest.mark.parametrize("promised", [True, None], ids=["deterministic", "nothing promised"])
@pytest.mark.parametrize(
    "case",
    [
        *(dataclasses.replace(CAUSAL, dtype=dtype) for dtype in ("fp16", "bf16", "fp32")),
        dataclasses.replace(FP32, scale=-3.0),
        dataclasses.replace(FP32, scale=0.0),
        BITS,
    ],
    ids=["fp16", "bf16", "fp32", "negative scale", "no scale", "bitmap"],
)
def test_a_correct_subject_passes(case, promised):
    correct = subject(supports=EVERY_DTYPE, contract=Contract(deterministic=promised))
    result = judge_case(correct, case, PLAN)

    assert [(v.check, v.status.value) for v in result.verdicts] == [("relations", "pass")]


def test_bits_that_the_rows_of_a_tile_share_are_no_failure():
    def together(p):
        o, lse = rounded(p)
        larger = float(p.k.detach().abs().max()) > 2.0**20
        return o, lse * (1 + 2.0**-23) if larger else lse

    assert found(subject(together), FP32) == set()


@pytest.mark.parametrize(
    "text",
    [
        "fv1 heads_q=2 heads_kv=1 seq_q=6 seq_k=9 dtype=fp32 seed=1",
        "fv1 heads_q=2 heads_kv=1 seq_q=1 seq_k=9 dtype=fp32 causal=bottom-right seed=1",
        "fv1 batch=2 heads_q=2 heads_kv=1 seq_q=6 seq_k=9 dtype=fp32 klen=4,9 seed=1",
    ],
    ids=["no mask", "a row that sees all", "padding alone"],
)
def test_where_no_key_is_hidden_nothing_is_asked(text):
    assert judge_case(subject(), parse_case(text), PLAN).verdicts == ()


@pytest.fixture
def asked(monkeypatch):
    """Gives the problems of both passes and the outputs of the base, as they are compared."""

    def ask(case):
        problems, compared = [], {}
        inner = subject()
        supports = dataclasses.replace(inner.supports, masks=(*inner.supports.masks, "key_lengths"))

        def forward(problem, result):
            problems.append(problem)
            return result

        monkeypatch.setattr(hidden, "alike", lambda _: False)
        monkeypatch.setattr(hidden, "within", lambda _, left, right: compared.update(left) or iter(()))
        judge_case(Wrapped(forward=forward, inner=dataclasses.replace(inner, supports=supports)), case, PLAN)
        return (*problems, compared)

    return ask


def changed(base, other):
    """Bool `[B, Hkv, Sk]`; padding may be NaN."""
    keys = (base.v != other.v).any(-1)
    assert torch.equal(keys, (base.k != other.k).any(-1))
    return keys


def test_only_keys_that_the_row_does_not_see_change_and_only_rows_that_see_none_are_compared(asked):
    base, other, compared = asked(FP32)
    keys = changed(base, other)[0, 0].tolist()
    first = keys.index(True)  # 5 rows at the end of 9 keys: row r sees keys up to r + 4

    assert 0 < first < 9
    assert keys == [key >= first for key in range(9)]
    assert (~compared["lse"].free)[0].tolist() == [[row + 4 < first for row in range(5)]] * 2
    assert bool(compared["dk"].free.all())


def test_a_row_is_compared_in_every_head_of_its_group(asked):
    case = parse_case("fv1 heads_q=4 heads_kv=1 seq_q=6 seq_k=30 dtype=fp32 bitmap=128,5,1 klen=30 seed=3")
    base, other, compared = asked(case)
    seen = (base.bitmap & changed(base, other)[:, :, None]).any(-1).expand(1, 4, 6)

    assert base.bitmap.shape[1] == 4
    assert torch.equal(compared["lse"].free, seen)
    assert bool((~seen).all(1).any())


def test_keys_behind_the_declared_length_keep_their_values(asked):
    case = parse_case("fv1 batch=2 heads_q=2 heads_kv=1 seq_q=5 seq_k=9 dtype=fp32 causal=top-left klen=3,7 seed=3")
    base, other, _ = asked(dataclasses.replace(case, storage=dataclasses.replace(case.storage, padding="dirt")))
    keys = changed(base, other)

    assert bool(keys[0, 0, :3].any())
    assert bool(keys[1, 0, :7].any())
    assert not bool(keys[0, 0, 3:].any() | keys[1, 0, 7:].any())


@pytest.mark.slow
@pytest.mark.usefixtures("interpreter")
def test_an_exponential_that_is_clamped_from_below_is_found_by_nothing_else(tmp_path):
    case = parse_case("fv1 heads_q=2 heads_kv=1 seq_q=16 seq_k=16 dim_qk=16 dim_v=16 dtype=bf16 causal=top-left seed=3")
    mutant = Mutant(
        name="clamped_exponent",
        file="device/softmax.py",
        before="p = tl.exp2(z - pivot[:, None])",
        after="p = tl.exp2(tl.maximum(z - pivot[:, None], -100.0))",
        outputs=("o", "delta", "dq"),
        modelled_on="a polynomial exp2 that clamps its argument, so that a masked pair keeps the smallest weight",
    )

    assert found(load_subject("bundled"), case) == set()
    assert found(load_subject(build_mutant(mutant, tmp_path)), case, Plan.run()) == {
        ("relations", "hidden-keys", name) for name in ("o", "delta", "dq")
    }
