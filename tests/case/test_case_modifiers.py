"""Values of biases, sinks and slopes, and the bits that they have for good."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from flashverify.case import DTYPES, REGIMES, Case, Values, parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.case.modifiers.alibi import slope_values
from flashverify.case.modifiers.bias import bias_values
from flashverify.case.modifiers.modifier import FAR
from flashverify.case.modifiers.sink import sink_values
from flashverify.case.values.tensor_bits import tensor_bits
from tests.case.modifier_cases import PACKED, SHAPE, tensors
from tests.fast_tier import fast_one_in

GOLDEN = Path(__file__).with_name("golden_features.txt")
GOLDEN_NAMES = {"bitmap": "bitmask"}
"""What the golden digests call a tensor of another name."""
LINES = [
    *(f"{SHAPE} dtype={d} bias={b} seed={s}" for d in DTYPES for b, s in (("full", 5), ("head", 6), ("shared", 7))),
    *(f"{SHAPE} dtype={d} bias=head regime={r}" for d in DTYPES for r in ("zeros", "integers", "tiny", "subnormal")),
    *(f"{SHAPE} alibi=yes sink=yes regime={r} seed=9" for r in ("zeros", "integers", "normal")),
    f"{SHAPE.replace('heads_q=4', 'heads_q=24')} alibi=yes sink=yes seed=200",
    f"{SHAPE} bitmap=100,7 blocks=16,8,100,7",
    f"{SHAPE} bitmap=100,7,1 blocks=16,8,20,7,1,1",
    f"{SHAPE} klen=37,9 qlen=3,19 bias=full page_size=16 padding=nan",
    f"{SHAPE} klen=37,9 page_size=5 padding=-inf layout=bshd gap=3 offset=1 expand=yes",
    f"{SHAPE} page_size=64 padding=zero",
    f"{PACKED} bias=head padding=dirt",
    f"{PACKED} regime=one-hot",
    *(f"{SHAPE} alibi=wild sink=yes seed={seed} strided=yes padding=nan" for seed in (0, 9)),
    *(f"{SHAPE} relative_bias=8,20,both seed={seed}" for seed in (0, 5, 6, 7)),
    *(f"{SHAPE} relative_bias=32,128 regime={regime} strided=yes padding=nan" for regime in ("zeros", "integers")),
]


def golden_lines():
    lines = []
    for text in LINES:
        case = parse_case(f"fv1 {text}")
        digest = hashlib.sha256()
        for name, tensor in sorted(tensors(materialize(case)[0]).items()):
            word = {1: torch.int8, 2: torch.int16, 4: torch.int32}[tensor.itemsize]
            digest.update(GOLDEN_NAMES.get(name, name).encode() + tensor.contiguous().view(word).numpy().tobytes())
        lines.append(f"{digest.hexdigest()[:32]} {case}")
    return lines


def test_every_optional_tensor_has_its_golden_bits():
    assert GOLDEN.read_text(encoding="ascii").splitlines() == golden_lines()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", fast_one_in(3, REGIMES))
def test_bias_and_sink_are_finite_and_exact_in_fp32(regime, dtype):
    for seed in (*range(8), 8, 9, 77):
        case = Case(heads_q=4, heads_kv=2, seq_q=9, seq_k=11, dtype=dtype, values=Values(regime=regime, seed=seed))
        case = dataclasses.replace(case, logits=dataclasses.replace(case.logits, bias="head", sink=True))
        for values in (bias_values(case), sink_values(case)):
            assert np.isfinite(values).all()
            assert (values == values.astype(np.float32)).all()
        assert torch.isfinite(materialize(case)[0].bias).all()


def test_biases_differ_in_kind_by_the_seed():
    def bias(seed):
        return bias_values(parse_case(f"fv1 seq_q=30 seq_k=30 bias=shared seed={seed}"))

    assert all(0.9 < bias(seed).std() < 1.1 for seed in range(4))
    assert not bias(4).any()
    assert 0.2 < (bias(5) == FAR).mean() < 0.3
    assert 6 < bias(6).std() < 10
    assert (np.abs(bias(7) - FAR) <= 16).all()


def test_sinks_dominate_vanish_or_are_ordinary():
    sinks = np.concatenate([sink_values(parse_case(f"fv1 heads_q=8 sink=yes seed={s}")) for s in range(8, 60)])

    assert {64.0, FAR, -FAR} < set(sinks.tolist())
    assert 0.4 < (np.abs(sinks) < 4).mean() < 0.6
    assert all(np.abs(sink_values(parse_case(f"fv1 heads_q=8 sink=yes seed={s}"))).max() < 4 for s in range(8))


def test_slopes_are_geometric():
    case = parse_case("fv1 heads_q=8 heads_kv=2 alibi=yes")

    assert [2.0**-n for n in range(1, 9)] == slope_values(case).tolist() == materialize(case)[0].slopes.tolist()
    assert torch.float32 == materialize(case)[0].slopes.dtype


def test_wild_slopes_have_both_signs_and_every_magnitude():
    slopes = [slope_values(parse_case(f"fv1 heads_q=6 alibi=wild seed={seed}")) for seed in range(60)]
    every = np.concatenate(slopes)

    assert (every == every.astype(np.float32)).all()
    assert 0.4 < (every < 0).mean() < 0.6
    assert 2.0**-8 <= np.abs(every).min() < 0.02
    assert 2.0**13 < np.abs(every).max() < 2.0**14
    assert len({tuple(values) for values in slopes}) == 60


def test_one_hot_has_a_winner_in_every_packed_sequence():
    problem, _ = materialize(parse_case(f"fv1 {PACKED} regime=one-hot dtype=fp32"))
    s = (problem.q[:, :, :17].double() @ problem.k.double().repeat_interleave(2, 1).mT) * problem.scale

    for first, last in ((0, 9), (9, 20), (20, 33)):
        best = s[..., first:last].topk(2).values
        assert (best[..., 0] - best[..., 1] > 20).all()


def test_other_tensors_keep_their_bits_whatever_is_added():
    plain, rich = (tensor_bits(parse_case(f"fv1 {SHAPE} {more}")) for more in ("", "bias=full sink=yes alibi=yes"))

    assert {"bias", "sink", "slopes"} == set(rich) - set(plain)
    assert all((plain[name] == rich[name]).all() for name in plain)


def test_dropout_keys_use_all_their_bits():
    problems = [materialize(parse_case(f"fv1 dropout=0.25 seed={seed}"))[0] for seed in range(64)]

    assert {0.25} == {p.dropout_p for p in problems}
    assert problems[0].dropout_seed == problems[0].dropout_offset == 0
    assert len({p.dropout_seed for p in problems}) == len({p.dropout_offset for p in problems}) == 64
    assert max(p.dropout_seed for p in problems) >> 63
    assert max(p.dropout_offset for p in problems) >> 31
    assert all(p.dropout_seed < 2**64 and p.dropout_offset < 2**32 for p in problems)
