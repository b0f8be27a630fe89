"""Wrong gradients at some pairs, in sums over rows and pairs, and with rows, draws and arguments of elsewhere are read and said in words."""

import dataclasses

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.state.calling import Called, Way
from flashverify.diagnosis.state.candidates import SINGLE, fitting
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain, planted
from tests.diagnosis.stepwise import assign, stepwise
from tests.fast_tier import fast_one_in, thorough_in

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=16 dim_v=16 dtype=fp32 "


def _row(x):
    return x.unsqueeze(-1)


def _dlse_of_the_own_stripe(s):
    rows, keys = (torch.arange(n) % 2 for n in s.p.shape[2:])
    own = rows[:, None] == keys[None, :]
    s.ds = s.p * (s.dp - _row(s.delta) + torch.where(own, _row(s.dlse), 0.0))


def _dlse_of_the_last_visit(s):
    """Of two devices with rows and keys one after the other, the one whose keys come last to a row."""
    rows, keys = (torch.arange(n) >= n // 2 for n in s.p.shape[2:])
    step = torch.where(s.see, (rows[:, None] != keys[None, :]).long(), -1)
    last = step == step.amax(-1, keepdim=True)
    s.ds = s.p * (s.dp - _row(s.delta) + torch.where(last, _row(s.dlse), 0.0))


def _without_delta_in_the_rest(s):
    """dK alone: behind the last whole tile of 16 rows."""
    rows = s.p.shape[2]
    late = _row(torch.arange(rows) >= rows // 16 * 16)
    s.dk = s.scale * ((s.inner + torch.where(late, s.p * _row(s.delta), 0.0)).mT @ s.q)


def _contiguous_dlse(s):
    x = s.problem.dlse
    s.dlse = x.as_strided(x.shape, torch.empty(x.shape).stride()).double()


def _slope_behind_the_slopes(s):
    at, key = (torch.arange(n) for n in s.p.shape[2:])
    added = -s.problem.slopes.double().view(1, -1, 1, 1) * (at[:, None] - key[None, :]).abs()
    s.inner = s.ds * (1 - torch.tanh((s.raw + added) / s.cap) ** 2)


def _strided(subject):
    supports = dataclasses.replace(subject.supports, strided=True)
    return type("Strided", (type(subject),), {"supports": supports})()


class _WithoutTheFarthest(Plain):
    def backward(self, problem, forward):
        self.problem = problem
        return super().backward(problem, forward)

    def table_gradient(self, ds, buckets, count):
        far = self.distance(self.problem)[:, None] == -(len(self.problem.distance_buckets) // 2)
        return super().table_gradient(torch.where(far, 0.0, ds), buckets, count)


PLANTED = {
    "pieces of a ring": (
        lambda: stepwise(at_ds=_dlse_of_the_own_stripe),
        CASE + "dlse=yes",
        "dS in effect in dQ and dK is P (dP - delta) where row and key lie in different pieces, of 2 pieces that are dealt out in turn: "
        "dLSE is missing",
    ),
    "all visits of a ring but the last": (
        lambda: stepwise(at_ds=_dlse_of_the_last_visit),
        CASE + "causal=top-left dlse=yes",
        "dS in effect in dQ and dK is P (dP - delta) in all pieces of keys but the last that the row sees as a ring brings them, "
        "of pieces one after the other, one for each of the two devices: dLSE is missing",
    ),
    "dsink without the last sequence": (
        lambda: stepwise(at_sink=assign(sink_weight=lambda s: torch.cat([s.sink_weight[:-1], 0 * s.sink_weight[-1:]]))),
        CASE + "batch=2 sink=yes",
        "dsink leaves out what it sums in the last sequence",
    ),
    "the last rows of dK": (
        lambda: stepwise(at_heads=_without_delta_in_the_rest),
        CASE,
        "dS in effect in dK is P dP in a last tile of 16 rows that is not full: delta is missing",
    ),
    "dLSE by wrong strides": (
        lambda: _strided(stepwise(at_rows=_contiguous_dlse)),
        CASE + "strided=yes dlse=yes",
        "dLSE is read as if it were contiguous, whatever its strides are",
    ),
    "the slope at another argument": (
        lambda: stepwise(at_slope=_slope_behind_the_slopes),
        CASE + "softcap=2 alibi=yes",
        "dS in effect in dQ and dK is P (dP - delta): the derivative of the softcap is taken at the product + ALiBi",
    ),
    "draws of another head": (
        lambda: stepwise(at_heads=assign(dv=lambda s: (s.p * s.keep.roll(-1, 1)).mT @ s.do)),
        CASE + "heads_q=3 heads_kv=3 dropout=0.25",
        "the draws of dropout are those of the next query head",
    ),
    "dLSE in another layout": (
        lambda: stepwise(at_rows=assign(dlse=lambda s: s.dlse.reshape(s.dlse.mT.shape).mT)),
        CASE + "heads_q=3 heads_kv=3 dlse=yes",
        "dLSE is that of the row and head that stand there in memory if it is read as [B, Sq, Hq]",
    ),
    "a shared bias without the first sequence": (
        lambda: stepwise(at_end=assign(dbias=lambda s: s.ds[len(s.ds) > 1 :].sum(0, keepdim=True))),
        CASE + "batch=2 bias=head",
        "dbias leaves out what it sums in the first sequence",
    ),
    "a distance of the table": (
        _WithoutTheFarthest,
        CASE.replace("seq_q=5", "seq_q=15") + "relative_bias=8,6",
        "drelative_bias leaves out what it sums at keys as far before the row as the table reaches",
    ),
}


REPEATED = ("the last rows of dK", "a distance of the table", "dsink without the last sequence")
"""The places of test_gradient_readings.py, test_gradient_sums.py and test_gradient_families.py, in other outputs."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", fast_one_in(4, thorough_in(REPEATED, PLANTED)))
def test_a_planted_effect_is_said(name):
    build, text, words = PLANTED[name]
    trials = Trials(build(), 300.0)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    said = " | ".join(gradients_in_effect(trials, scene))
    assert words in said, said
    assert "for a reason that was not found" not in said


@pytest.mark.slow
def test_what_holds_with_packed_sequences_alone_says_so():
    def last_lost(s):
        if s.problem.case.mask.packed is None:
            return
        start = s.problem.case.mask.packed.cu_q[-2]
        s.sink_weight = torch.where(torch.arange(s.sink_weight.shape[2]) < start, s.sink_weight, 0.0)

    class Packed(type(stepwise(at_sink=last_lost))):
        supports = dataclasses.replace(Plain.supports, masks=(*Plain.supports.masks, "packed"))

        def see(self, problem):
            see = super().see(problem)
            if (packed := problem.case.mask.packed) is not None:
                rows, keys = (
                    torch.bucketize(torch.arange(n), torch.tensor(cu[1:]), right=True)
                    for n, cu in zip(see.shape[2:], (packed.cu_q, packed.cu_k), strict=True)
                )
                see = see & (rows[:, None] == keys[None, :])
            return see

    trials = Trials(Packed(), 300.0)
    for seed in (1, 2, 3):
        assert not trials.scene(parse_case(f"{CASE} sink=yes batch={seed} seed={seed}")).failures
    scene = trials.scene(parse_case(f"{CASE} packed=0,2,5/0,4,7 sink=yes"))
    assert list(scene.failures) == ["dsink"]

    found = readings(trials, scene, "dsink")

    assert found.sentences == ("Dsink leaves out what it sums in the last sequence, only with packed sequences",)


def test_related_cases_of_one_packed_sequence_have_several():
    case = parse_case(f"{CASE} packed=0,5/0,7")

    found = grown(case, 3, 4, regime="normal", seed=1, batch=3)

    assert found.mask.packed.lengths() == ((8, 11),) * 3


@pytest.mark.parametrize(("kept", "named"), [(0.0, False), (0.5, True)])
def test_a_zero_is_no_output_of_an_earlier_call(kept, named):
    scene = look(planted(), parse_case(f"{CASE} heads_q=2 sink=yes"))
    output = dict(scene.outputs, dsink=torch.full((2,), kept, dtype=torch.float64))
    later, earlier = (dataclasses.replace(scene, outputs=output, memo={}) for _ in range(2))
    called = Called(pair=None, way=Way.HELD, earlier=earlier, later=later, strided={})
    candidates = tuple(each for each in SINGLE if each.name == "output")

    assert bool(fitting(candidates, planted(), called, frozenset({"dsink"}))) is named
