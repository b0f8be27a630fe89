"""Readings of a forward say where a part of it does not act, and by which number, head or statistic it goes; right cases refute what is too wide."""

import dataclasses

import pytest
import torch

from flashverify import Supports, subject
from flashverify.case.text import parse_case
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.masks.right_cases import is_without, shows
from flashverify.diagnosis.trials import Trials
from flashverify.numerics import Form
from tests.diagnosis.planted import Plain, planted
from tests.quantised.plain import FORMATS, attention

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 backward=no "
HEADS = "fv1 heads_q=4 heads_kv=2 seq_q=5 seq_k=20 dim_qk=16 dim_v=16 dtype=fp32 backward=no "
CODES = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=4 seq_k=9 dim_qk=8 dim_v=8 backward=no dtype=fp16 "


def sentences(subject, text, seconds=300):
    trials = Trials(subject, seconds)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    return readings(trials, scene, next(iter(scene.failures))).sentences


class MaskedTilesKeepAll(Plain):
    """Tiles of 64 rows and 32 keys in which a pair is hidden, or that end behind the keys, drop nothing."""

    def kept(self, problem, keep):
        see, keep = self.see(problem), keep.clone()
        for i in range(0, keep.shape[2], 64):
            for j in range(0, keep.shape[3], 32):
                tile = see[:, :, i : i + 64, j : j + 32]
                whole = tile.all(-1).all(-1) & (j + 32 <= keep.shape[3])
                part = keep[:, :, i : i + 64, j : j + 32]
                part.copy_(torch.where(whole[..., None, None], part, 1.0))
        return keep


def from_the_tile(self, problem):
    keys = torch.arange(problem.case.seq_k)
    return Plain.distance(self, problem) - keys // 16 * 16


def merged(weigh):
    """O of three pieces of the keys, weighed by what `weigh` makes of their LSE and their largest logits."""

    def output(self, o, z, v, lse):
        size = -(-z.shape[-1] // 3)
        parts = [(z[..., a : a + size], v[..., a : a + size, :]) for a in range(0, z.shape[-1], size)]
        shares = torch.stack([weigh(part.logsumexp(-1), part.amax(-1)) for part, _ in parts]).softmax(0)
        return sum(share[..., None] * (part.softmax(-1) @ x) for share, (part, x) in zip(shares, parts, strict=True))

    return output


def short_tails_lost(self, see):
    count = see.shape[3]
    return see & (torch.arange(count) < (count // 32 * 32 if 0 < count % 32 <= 2 else count))


class LastKeyOfNarrowHeads(Plain):
    """O misses the last key where a head has eight channels."""

    def see(self, problem):
        see = super().see(problem)
        return see[..., :] & (torch.arange(see.shape[3]) < see.shape[3] - (problem.case.dim_qk == 8))


def codes(**parts):
    """Attention over codes of which some tensors are others of the problem."""
    declared = Supports(
        dtypes=("fp16",),
        masks=(),
        backward=False,
        quantised=FORMATS,
        quantised_scales=("head", "token"),
        zero_points=True,
        non_finite=False,
    )

    @subject(name="codes", supports=declared, form=Form(dequantised="operand"), device="cpu")
    def made(problem):
        changed = {name: getattr(problem, of) if isinstance(of, str) else of(problem) for name, of in parts.items()}
        return attention(dataclasses.replace(problem, **changed))

    return made


READ = [
    (
        CASE.replace("seq_q=5 seq_k=7", "seq_q=20 seq_k=30") + "causal=bottom-right dropout=0.5",
        MaskedTilesKeepAll(),
        "The weights of the tiles of 64 rows and 32 keys that need a mask (a hidden pair, or the end of the keys, lies in them)"
        " are not dropped, though they are divided by 1 - p",
    ),
    (
        CASE.replace("seq_k=7", "seq_k=20") + "alibi=yes",
        planted(distance=from_the_tile),
        "ALiBi counts keys from the first key of the tile of 16",
    ),
    (
        CASE.replace("seq_k=7", "seq_k=20") + "alibi=wild seed=1",
        planted(alibi=lambda s, d: d.abs().clamp(max=8)),
        "ALiBi's distance is at most 8",
    ),
    (
        HEADS,
        planted(output=merged(lambda lse, top: top)),
        "Partial results are weighed by the exponential of their largest logit in place of their LSE",
    ),
    (
        CASE.replace("seq_k=7", "seq_k=33"),
        planted(drop_keys=short_tails_lost),
        "O misses the last tile of 32 of the keys, where at most 2 keys of it are left",
    ),
    (
        HEADS + "sink=yes",
        planted(sinks=lambda s, sinks: sinks[:1].expand_as(sinks)),
        "The row sum that O is divided by has the sink of the first query head",
    ),
    (CASE, LastKeyOfNarrowHeads(), "O has the mask in which the key length is keys - 1, on the cases that fail"),
    (
        CODES + "quantised=int8/token/varied/zeros",
        codes(v_zero="k_zero"),
        "V is read as scale * (code - zero point of K)",
    ),
    pytest.param(
        CODES + "quantised=int8/head/varied/zeros",
        codes(k_zero=lambda p: p.k_zero.roll(-1, 1), k_scale=lambda p: p.k_scale.roll(-1, 1)),
        "K is read as scale of the next head * (code - zero point of the next head)",
        marks=pytest.mark.thorough,
    ),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("text", "subject", "sentence"), READ)
def test_a_forward_is_read_in_words_of_its_parts(text, subject, sentence):
    assert sentences(subject, text)[:1] == (sentence,)


def test_weights_that_are_wrong_are_no_masks():
    def output(self, o, z, v, lse):
        noise = torch.rand(z.shape, generator=torch.Generator().manual_seed(z.shape[-1]), dtype=z.dtype)
        return (z + noise).softmax(-1) @ v

    assert not any("pair" in words or "misses" in words for words in sentences(planted(output=output), CASE, 3))


@pytest.mark.thorough
def test_logits_of_too_few_bits_are_no_other_lse():
    def cap(self, raw, most):
        mantissa, exponent = torch.frexp(torch.tanh(raw / most))
        return most * torch.ldexp((mantissa * 2**12).trunc() / 2**12, exponent)

    found = sentences(
        planted(cap=cap),
        CASE.replace("seq_q=5 seq_k=7", "seq_q=2 seq_k=4") + "softcap=0.546875 regime=integers seed=49",
        seconds=5,
    )

    assert not any("largest logit" in words for words in found)


def test_a_case_is_without_the_keys_that_are_missing_alone():
    scene = Trials(LastKeyOfNarrowHeads(), 300).scene(parse_case(CASE))
    key = torch.arange(7)

    assert is_without(scene, key == 6)
    assert not is_without(scene, key >= 5)


def test_a_key_that_weighs_next_to_nothing_refutes_no_rule():
    trials = Trials(Plain(), 300)
    scene = trials.scene(parse_case(CASE + "alibi=yes"))
    z = scene.inputs.scale * (scene.inputs.q.double() @ scene.inputs.k.double().mT) + scene.inputs.biases[0]
    least = z.softmax(-1) < 0.01

    assert least.any()
    assert not shows(scene, least)
    assert shows(scene, ~least)
