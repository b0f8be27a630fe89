"""Cases too large for an oracle of every row: what it says of some rows and keys is what it says of them in the whole problem."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.campaign.commands.replay import result_lines
from flashverify.case.memory.materialize import materialize
from flashverify.checks import Plan, engine, judge_case
from flashverify.checks.passes import base_pass
from flashverify.checks.sampled import judging, positions
from flashverify.checks.sampled.overflow import stays_in_range
from flashverify.judge.verdict import CaseResult, Status
from flashverify.numerics import Form
from flashverify.subjects import Contract
from flashverify.truth import Truth, inputs_of, of_keys, of_rows
from tests.checks.naive import attention, make

LARGE = parse_case(
    "fv1 heads_q=2 heads_kv=1 seq_q=150 seq_k=210 dim_qk=8 dim_v=8 dtype=fp32 causal=bottom-right seed=1"
)
PROBLEMS = (
    "batch=2 heads_q=4 heads_kv=2 seq_q=50 seq_k=70 dim_qk=16 dim_v=24 dtype=fp16",
    "heads_q=2 heads_kv=1 seq_q=50 seq_k=70 dim_qk=16 dim_v=8 dtype=bf16 causal=bottom-right dlse=yes",
    "heads_q=2 heads_kv=2 seq_q=50 seq_k=50 dim_qk=8 dim_v=8 dtype=fp32 causal=top-left alibi=yes sink=yes softcap=30 dropout=0.25",
    "heads_q=1 heads_kv=1 seq_q=40 seq_k=60 dim_qk=8 dim_v=8 dtype=bf16 packed=0,7,30/0,20,50",
)
FORMS = (Form(delta_from="o", p_from="lse"), Form(delta_from="o", p_from="lse", block_n=16, key_order="ascending"))


class _Flash(torch.autograd.Function):
    """Attention whose backward starts from its own O and LSE, as flash attention's does; `break_` changes one gradient."""

    @staticmethod
    def forward(ctx, q, k, v, problem, changes):
        o, lse = attention(dataclasses.replace(problem, q=q, k=k, v=v), **changes.get("forward", {}))
        o, lse = changes.get("outputs", lambda *x: x)(o, lse)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.problem, ctx.change = problem, changes.get("gradients", lambda *x: x)
        return o, lse

    @staticmethod
    def backward(ctx, do, _dlse):
        q, k, v, o, lse = ctx.saved_tensors
        p, group = ctx.problem, q.shape[1] // k.shape[1]
        wide = [x.repeat_interleave(group, 1) for x in (k, v)]
        s = (q @ wide[0].mT) * p.scale
        rows, keys = torch.arange(q.shape[2]).view(-1, 1), torch.arange(k.shape[2])
        see = keys <= rows + (k.shape[2] - q.shape[2]) if p.causal else keys >= 0
        w = torch.where(see, (s - lse.unsqueeze(-1)).exp(), 0.0)
        delta = (do * o).sum(-1, keepdim=True)
        ds = w * (do @ wide[1].mT - delta) * p.scale
        dk, dv = ((x.mT @ y).unflatten(1, (-1, group)).sum(2) for x, y in ((ds, q), (w, do)))
        return (*ctx.change(ds @ wide[0], dk, dv), None, None)


def flash(**changes):
    return make(
        lambda p: _Flash.apply(p.q, p.k, p.v, p, changes), contract=Contract(reads_outputs=True, deterministic=True)
    )


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Cases of a test count as large, and sixty of their rows and keys are judged."""
    monkeypatch.setattr(base_pass, "ORACLE_LIMIT", 1000)
    monkeypatch.setattr(positions, "_PAIRS", 1)
    monkeypatch.setattr(positions, "_LEAST", 75)
    monkeypatch.setattr("flashverify.checks.relations.oracle_free.ROWS_WORK", 8)


def judged(subject, case=LARGE):
    return judge_case(subject, case, Plan.fuzz(case))


@pytest.mark.parametrize("form", FORMS, ids=["free", "ascending"])
@pytest.mark.parametrize("text", PROBLEMS, ids=["dense", "causal", "modified", "packed"])
def test_a_part_has_the_values_and_the_bounds_of_the_whole(text, form):
    case = parse_case(f"fv1 {text} seed=1")
    inputs = inputs_of(materialize(case)[0])[0]
    rows, keys = (torch.tensor([0, 3, 4, 17, size - 1]) for size in (case.seq_q, case.seq_k))
    whole, some = (Truth(each, case.dtype, form) for each in (inputs, of_rows(inputs, rows)))
    o, lse = whole.forward()["o"][0].float(), whole.forward()["lse"][0].float()
    given = whole.given(o, lse)
    by_rows = (
        (whole.forward(), some.forward(), ("o", "lse")),
        (whole.backward(), some.backward(), ("delta", "dq")),
        (given[0], some.given(o[:, :, rows], lse[:, :, rows])[0], ("delta", "dq")),
        (whole.strict(), some.strict(), tuple(whole.strict())),
    )
    by_keys = [*zip(given, Truth(of_keys(inputs, keys), case.dtype, form).given(o, lse), strict=True)]
    found = [(wide, part, names, rows) for wide, part, names in by_rows]
    found += [(wide, part, tuple({"dk", "dv"} & wide.keys()), keys) for wide, part in by_keys]

    assert {name for *_, names, _ in found for name in names} == {"o", "lse", "delta", "dq", "dk", "dv"}
    for wide, part, names, places in found:
        for name in names:
            (value, bound), (mine, own) = wide[name], part[name]
            for expected, got in ((value, mine), (bound.bound, own.bound), (bound.self_error, own.self_error)):
                torch.testing.assert_close(got, expected.index_select(2, places), rtol=1e-10, atol=1e-13)


def test_a_right_kernel_passes_and_the_result_says_what_was_judged():
    result = judged(flash())

    assert not result.failures, result.failures
    assert {(v.check, v.status) for v in result.verdicts} == {
        (check, Status.PASS) for check in ("memory", "accuracy", "nonfinite", "relations", "counting")
    }
    assert 75 == result.sampled.rows < result.sampled.of_rows == 150
    assert 75 == result.sampled.keys < result.sampled.of_keys == 210
    assert result.sampled.left_out == ()
    assert {(s.output, s.mode) for s in result.stats} >= {
        ("o", "end-to-end"),
        ("dq", "conditional"),
        ("dk", "conditional"),
    }
    assert (
        str(result.sampled)
        == f"the oracle judged {result.sampled.rows} of 150 rows and {result.sampled.keys} of 210 keys"
    )
    assert CaseResult.from_json(result.to_json()) == result
    assert f"  sampled: {result.sampled}; relations and counting look at the others" in result_lines(result)


def spoil(number, row, amount):
    """A change of one element of a row or key of one of several tensors."""

    def change(*tensors):
        tensors[number][0, 0, row] += amount
        return tensors

    return change


@pytest.mark.parametrize(
    ("changes", "output", "place", "axis"),
    [
        ({"outputs": spoil(0, 149, 1e-3)}, "o", 149, "150 rows"),
        ({"outputs": spoil(1, 64, 1e-3)}, "lse", 64, "150 rows"),
        ({"gradients": spoil(0, 0, 1e-3)}, "dq", 0, "150 rows"),
        ({"gradients": spoil(1, 209, 1e-2)}, "dk", 209, "210 keys"),
        ({"gradients": spoil(2, 127, 1e-2)}, "dv", 127, "210 keys"),
    ],
)
def test_a_defect_at_an_edge_is_found_and_named_by_its_place_in_the_whole(changes, output, place, axis):
    verdicts = [v for v in judged(flash(**changes)).failures if v.check == "accuracy"]
    found = next(v for v in verdicts if v.output == output)

    assert found.index[2] == place
    assert f"[0, 0, {place}" in found.message
    assert f" of {axis})" in found.message


def test_a_nan_at_an_edge_is_found():
    failures = judged(flash(outputs=spoil(0, 149, float("nan")))).failures

    assert ("nonfinite", "nan", "o") in {(v.check, v.error, v.output) for v in failures}


def test_a_nan_that_the_oracle_does_not_look_at_is_found_all_the_same():
    row = next(n for n in range(70, 150) if n not in _rows_of(flash(), LARGE))
    found = {v.output: v for v in judged(flash(outputs=spoil(0, row, float("nan")))).failures}

    assert found["o"].check == "nonfinite"
    assert found["o"].index == (0, 0, row, 0)
    assert (
        found["o"].message == f"o[0, 0, {row}, 0] is NaN where no input is and nothing overflows (8 of 2400 elements)"
    )


def test_a_key_that_one_row_drops_is_counted_though_the_oracle_does_not_judge_the_row():
    forward = dataclasses.replace(LARGE, grad=dataclasses.replace(LARGE.grad, backward=False))
    row = next(n for n in range(70, 150) if n not in _rows_of(make(), forward))

    def drop(p):
        see = torch.ones(p.q.shape[2], p.k.shape[2], dtype=torch.bool).tril(p.k.shape[2] - p.q.shape[2])
        see[row, 5] = False
        s = torch.where(see, (p.q @ p.k.repeat_interleave(2, 1).mT) * p.scale, -torch.inf)
        return s.softmax(-1) @ p.v.repeat_interleave(2, 1), s.logsumexp(-1)

    assert row not in _rows_of(make(drop), forward)
    found = judged(make(drop), forward)

    assert {(v.check, v.error) for v in found.failures} == {("counting", "dropped"), ("counting", "lse-count")}
    assert all(v.index[2] == row for v in found.failures if v.index)


def _rows_of(subject, case):
    from flashverify.checks.passes.execution import execute

    problem, _ = materialize(case)
    return positions.judged_rows(case, inputs_of(problem)[0], execute(subject, problem).outputs).tolist()


def test_a_backward_that_does_not_read_its_outputs_is_judged_whole_or_named(monkeypatch):
    autograd = make(attention, contract=Contract(reads_outputs=False, deterministic=True))

    assert judged(autograd).sampled is None
    monkeypatch.setattr(judging, "WHOLE_LIMIT", 1000)
    result = judged(autograd)

    assert not result.failures
    assert result.sampled.keys == 0
    assert result.sampled.left_out == ("dk", "dv")
    assert str(result.sampled).endswith("0 of 210 keys, and nothing of dk, dv")


@pytest.mark.parametrize(("regime", "inside"), [("normal", True), ("overflow", False)])
def test_keys_are_judged_by_themselves_only_where_no_row_can_overflow(regime, inside):
    case = parse_case(f"fv1 seq_q=40 seq_k=40 dim_qk=16 dim_v=16 dtype=fp16 regime={regime} seed=1")
    problem, _ = materialize(case)

    assert stays_in_range(problem, inputs_of(problem)[0], torch.ones(case.shape_o), Form()) is inside


def test_first_last_and_edges_are_among_the_positions():
    case = parse_case("fv1 seq_q=5000 seq_k=300 dim_qk=8 dim_v=8 packed=0,700,4100/0,100,300 backward=no")
    inputs = inputs_of(materialize(case)[0])[0]
    outputs = {"o": torch.zeros(case.shape_o), "lse": torch.arange(5000.0).view(1, 1, -1)}

    assert {0, 4999} <= set(positions.judged_rows(case, inputs, outputs).tolist())
    rows = positions._edges(5000, 64, (0, 700, 4100), __import__("numpy").random.default_rng(0))
    assert {0, 4999, 63, 64, 699, 700, 4099, 4100, 1023, 1024, 4095, 4096, 4991, 4992} <= set(rows)


@pytest.mark.parametrize(("scores", "status"), [(1000, Status.UNSUPPORTED), (10**6, Status.FAIL)])
def test_only_a_case_of_many_scores_may_leave_a_gpu_without_memory(monkeypatch, scores, status):
    def dense(_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 16.00 GiB")

    monkeypatch.setattr(engine, "_MANY_SCORES", scores)
    (verdict,) = judged(make(dense)).verdicts

    assert verdict.status is status
    assert "CUDA out of memory" in verdict.message


def test_a_large_query_of_one_head_does_not_meet_the_keys_of_another():
    """Their product would leave fp32; each with the ones of its own head stays far inside."""
    case = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=4 seq_k=4 dtype=fp32 backward=no")
    problem, _ = materialize(case)
    inputs = inputs_of(problem)[0]
    q, k = (torch.ones_like(x) for x in (inputs.q, inputs.k))
    q[:, 0], k[:, 1] = 2.0**70, 2.0**70
    apart = dataclasses.replace(inputs, q=q, k=k)
    together = dataclasses.replace(inputs, q=q, k=k.flip(1))

    assert stays_in_range(problem, apart, torch.ones(case.shape_o), Form())
    assert not stays_in_range(problem, together, torch.ones(case.shape_o), Form())
