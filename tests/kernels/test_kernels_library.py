"""The kernels as operators: what `torch.library.opcheck` asks, and `torch.compile` against eager calls, bit for bit."""

import importlib.util
import math
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.library import opcheck

import flashverify_kernels
from flashverify_kernels import (
    Configs,
    Dropout,
    LaunchConfig,
    Options,
    attention,
    decode,
    forward,
)
from flashverify_kernels.dispatch import NAMESPACE, ops
from flashverify_kernels.flatten import flatten, flatten_decode, unflatten, unflatten_decode
from flashverify_kernels.options import DecodeOptions
from tests.kernels.library_calls import TILES, VARIANTS, draw, inputs, lengths, options_of

COMPILED_ALONE = {"window", "lengths", "tree", "dropout"}
"""Those that `torch.compile` takes, with their gradients, in test_kernels_compiled.py: here they are thorough."""


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "variant", [pytest.param(x, marks=[pytest.mark.thorough] * (x in COMPILED_ALONE)) for x in VARIANTS]
)
def test_the_operators_of_attention_pass_opcheck(variant):
    dtype = torch.float16 if variant in ("causal", "bias") else torch.float32
    tensors, options = inputs(dtype), options_of(variant, dtype)
    values = flatten(Options(**options))

    opcheck(ops.attention_forward.default, (*tensors, *values))

    with torch.no_grad():
        o, _, lse2 = ops.attention_forward(*tensors, *values)
    do, dlse = draw(*o.shape, dtype=dtype, seed=3), draw(*lse2.shape, seed=4)
    needs = [True, True, False, "bias" in options, "sink" in options, "relative_bias" in options]
    tensors = [x.detach() for x in tensors]
    values = [x.detach() if isinstance(x, torch.Tensor) else x for x in values]
    opcheck(ops.attention_backward.default, (do, dlse, *tensors, o, lse2, needs, *values))


def test_a_gradient_has_no_gradient():
    q, k, v = inputs()
    o, _, lse2 = ops.attention_forward(q, k, v, *flatten(Options()))
    (dq,) = torch.autograd.grad(o.sum(), q, create_graph=True)

    assert not lse2.requires_grad
    with pytest.raises(RuntimeError, match="no autograd formula"):
        dq.sum().backward()


def test_a_table_that_changed_before_the_backward_is_noticed():
    q, k, v = inputs()
    key_lengths = lengths(20, 20)
    o, _, _ = ops.attention_forward(q, k, v, *flatten(Options(key_lengths=key_lengths)))
    key_lengths += 1

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_has_the_operator(strict):
    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return attention(q, k, v, causal="top-left", layout="bshd")

    tensors = tuple(x.detach() for x in inputs(layout="bshd"))
    program = torch.export.export(Module(), tensors, strict=strict)

    assert ops.attention_forward.default in [node.target for node in program.graph.nodes]
    assert torch.equal(program.module()(*tensors), Module()(*tensors))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_fake_results_look_like_real_ones(layout):
    def look(x):
        return x.shape, x.stride(), x.dtype, x.device

    tensors = [x.detach() for x in inputs(torch.float16, layout)]
    wide = [torch.cat([x, x], -1)[..., : x.shape[-1]] for x in tensors]
    for values in (tensors, wide):
        wanted = [attention(*values, layout=layout, return_lse=True), decode(*values, layout=layout, return_lse=True)]
        with FakeTensorMode() as mode:
            fake = [mode.from_tensor(x) for x in values]
            got = [attention(*fake, layout=layout, return_lse=True), decode(*fake, layout=layout, return_lse=True)]

        assert [look(x) for pair in wanted for x in pair] == [look(x) for pair in got for x in pair]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layout": "hbsd"}, ValueError, "layout: expected one of"),
        ({"causal": 3}, ValueError, "causal: expected one of"),
        ({"scale": math.inf}, ValueError, "scale: expected a finite fp32 number"),
        ({"scale": "1"}, TypeError, "scale: expected a number"),
        ({"window": [1, 2]}, TypeError, "window: expected"),
        ({"window": (-1, 2)}, ValueError, "window: expected sides of 0"),
        ({"tree": torch.zeros(1)}, TypeError, "tree: expected a TreeMask"),
        ({"key_lengths": [3]}, TypeError, "key_lengths: expected a tensor"),
        ({"dropout": 0.5}, TypeError, "dropout: expected a Dropout"),
        ({"config": TILES}, TypeError, "config: expected Configs"),
        ({"config": Configs(dq=LaunchConfig(block_m=24, block_n=16))}, ValueError, "config.dq: block_m"),
        ({"precision": "fast"}, ValueError, "precision: expected one of"),
    ],
)
def test_errors_are_the_same_without_values(options, error, message):
    tensors = [x.detach() for x in inputs()]
    with pytest.raises(error, match=message):
        attention(*tensors, **options)
    with FakeTensorMode() as mode, pytest.raises(error, match=message):
        attention(*(mode.from_tensor(x) for x in tensors), **options)


def test_options_survive_the_way_through_an_operator():
    sides = [(None, None), (2, None), (None, 3), (2**70, 1), None]
    for window in sides:
        found = unflatten(flatten(Options(window=window))).window
        assert found == (window if window != (2**70, 1) else (2**62, 1))
    for seed in (0, 2**63 - 1, 2**63, 2**64 - 1):
        dropout = Dropout(0.25, seed, 2**32 - 1)
        assert unflatten(flatten(Options(dropout=dropout))).dropout == dropout
    configs = Configs(forward=TILES, dkdv=LaunchConfig(block_m=32, block_n=16, num_warps=8, num_stages=1))
    assert unflatten(flatten(Options(config=configs))).config == configs
    assert unflatten_decode(flatten_decode(DecodeOptions(config=TILES, n_splits=7))).config == TILES


def test_a_copy_of_the_package_has_operators_of_its_own(tmp_path, monkeypatch):
    source = Path(flashverify_kernels.__file__).parent
    for path in source.rglob("*.py"):
        target = tmp_path / "other_kernels" / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            path.read_text(encoding="utf-8").replace("flashverify_kernels", "other_kernels"), encoding="utf-8"
        )
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.util.find_spec("other_kernels") is not None
    importlib.import_module("other_kernels")
    try:
        assert NAMESPACE == "flashverify"
        assert sys.modules["other_kernels.dispatch"].NAMESPACE == "other"
        q, k, v = (x.detach() for x in inputs())
        o, _, _ = ops.attention_forward(q, k, v, *flatten(Options()))

        assert torch.equal(o, forward(q, k, v).o)
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "other_kernels"]:
            del sys.modules[name]
