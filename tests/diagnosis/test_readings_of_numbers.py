"""Scales, weights in 8 bits, bits and devices, as the readings count them: each is held against a loop or a few numbers."""

import dataclasses
import math

import torch

from flashverify.case.memory.materialize import materialize
from flashverify.case.text import parse_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.code_reading import operand_codes
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.precision.eight_bits import weight_casts
from flashverify.diagnosis.precision.emulation import forward
from flashverify.diagnosis.precision.fitting import best
from flashverify.diagnosis.precision.models import models
from flashverify.diagnosis.precision.rounding import same
from flashverify.diagnosis.precision.steps import declared
from flashverify.diagnosis.readings.code_groups import of_groups
from flashverify.diagnosis.readings.masks.bits import masks_of_other_bits
from flashverify.diagnosis.readings.masks.ring_pieces import ring_pieces
from tests.diagnosis.planted import Plain
from tests.quantised.plain import plain

TEXT = "fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 backward=no "


def test_scales_of_single_keys_are_counted_by_tiles_too():
    text = TEXT.replace("seq_k=9", "seq_k=40") + "quantised=int8/token/varied"
    problem, _ = materialize(parse_case(text), "cpu")
    reading = operand_codes(problem, "k")
    found = of_groups("scale")["scale of the first key of each tile of 16"](reading, reading)
    scales = reading.groups[0, 0]

    assert torch.equal(found[0, 0, :, 0], scales[[0] * 16 + [16] * 16 + [32] * 8])


class OnDevices(Plain):
    supports = dataclasses.replace(Plain.supports, launch=(("ranks", (3,)),))


def test_all_devices_but_one_are_a_set_of_keys():
    scene = look(OnDevices(), parse_case(TEXT + "launch=ranks:3"))
    found = dict(ring_pieces(scene, lambda words, where: (words, where(scene))))
    pieces = "of pieces that are dealt out in turn, one for each of the ranks"
    others = found[f"keys on every device but the one 1 further than the row's, {pieces}"]

    for i in range(6):
        assert others[0, 0, i].tolist() == [j % 3 != (i + 1) % 3 for j in range(9)]


def test_weights_without_the_factor_before_their_cast_are_a_model():
    text = "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=4 seq_k=24 dim_qk=8 dim_v=8 dtype=fp16 backward=no quantised="
    scene = look(plain("fp8"), parse_case(text + "e4m3/tensor/fitted"))
    model = next(each for each in models(scene) if each.words == "P rounded to e4m3, without a factor before")
    p = torch.tensor([1.0, 0.3, 2.0**-8, 2.0**-11, 2.0**-14], dtype=torch.float64)

    assert declared(scene).p(p).tolist() == [1.0, 0.3125, 2.0**-8, 2.0**-11, 2.0**-14]
    assert model.change(declared(scene)).p(p).tolist() == [1.0, 0.3125, 2.0**-8, 0.0, 0.0]
    assert not any("P rounded to e4m3, times 256" in words for words, _ in weight_casts(scene))
    assert not list(weight_casts(look(Plain(), parse_case(TEXT))))
    assert math.isfinite(float(declared(scene).p(torch.tensor(2.0)).max()))


def test_bits_that_begin_elsewhere_are_a_mask():
    text = TEXT.replace("seq_q=6 seq_k=9", "seq_q=5 seq_k=5") + "tree=-1,0,1,0,3"
    scene = look(Plain(), parse_case(text))
    seen = scene.inputs.visible.expand(1, 2, 5, 5)[0, 0]
    later = dict(masks_of_other_bits())["the mask whose bits begin one key later, and hide no key before"](scene)[0, 0]

    for i in range(5):
        assert later[i].tolist() == [True, *(bool(seen[i, j]) and j < i for j in range(4))]


def test_a_sum_of_codes_is_rounded_before_their_scale_and_a_declared_cast_is_never_left_out():
    text = "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=4 seq_k=24 dim_qk=8 dim_v=8 dtype=fp16 backward=no quantised="
    scene = look(plain("fp8"), parse_case(text + "e4m3/head/varied"))
    words = "the accumulator of O before the scale of V, rounded to bf16 after each tile"
    model = next(each for each in models(scene) if each.words == words)
    steps = dataclasses.replace(declared(scene), o=same, p=same)
    exact, rounded = (forward(scene, each)["o"] for each in (steps, model.change(steps)))
    wider = dataclasses.replace(scene.inputs, v_scale=2.0 * scene.inputs.v_scale)
    ones = dataclasses.replace(steps, code_sum=torch.ones_like)
    of_ones = [forward(each, ones)["o"] for each in (scene, dataclasses.replace(scene, inputs=wider))]

    assert 0 < float((rounded - exact).abs().max()) < 2.0**-7 * float(exact.abs().max())
    assert torch.equal(of_ones[1], 2.0 * of_ones[0])
    assert not any("scale of V" in each.words for each in models(look(Plain(), parse_case(TEXT))))


def test_a_cast_that_is_declared_is_a_step_of_every_kernel():
    """A sum that is rounded beside it is not taken for the cast by another factor."""
    text = "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=9 seq_k=40 dim_qk=8 dim_v=8 dtype=fp16 backward=no quantised="
    scene = look(plain("fp8"), parse_case(text + "e4m3/tensor/fitted"))
    words = "the accumulator of O before the scale of V, rounded to bf16 after each tile"
    model = next(each for each in models(scene) if each.words == words)
    wrong = forward(scene, model.change(declared(scene)))["o"]
    shown = dataclasses.replace(scene, outputs={**scene.outputs, "o": wrong}, memo={})
    fits = best([shown, shown], frozenset({"o"}), Clock().end(60.0))

    assert words in {fit.words for fit in fits}
    assert not any(fit.words.startswith("P rounded to e4m3") for fit in fits)


def test_heads_that_remain_on_no_device_are_a_set():
    for heads, launch, lost in ((7, "launch=ranks:3", [6]), (5, "", [4]), (6, "", []), (2, "launch=ranks:3", [])):
        text = f"fv1 heads_q={heads} heads_kv=1 seq_q=2 seq_k=3 dim_qk=8 dim_v=8 dtype=fp32 backward=no {launch}"
        scene = look(OnDevices(), parse_case(text))
        found = dict(ring_pieces(scene, lambda words, where, scene=scene: (words, where(scene))))
        (of,) = [x for words, x in found.items() if "remain" in words and ("ranks" in words) == bool(launch)]

        assert torch.nonzero(of.expand(1, heads, 1, 1).flatten()).flatten().tolist() == lost
