"""The kernels as operators: what `torch.library.opcheck` asks, and `torch.compile` against eager calls, bit for bit."""

import functools
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
    Bitmap,
    BlockMask,
    Configs,
    Dropout,
    LaunchConfig,
    Options,
    Packed,
    RelativeBias,
    TreeMask,
    attention,
    attention_varlen,
    decode,
    forward,
    merge,
)
from flashverify_kernels.dispatch import NAMESPACE, ops
from flashverify_kernels.flatten import flatten, flatten_decode, unflatten, unflatten_decode
from flashverify_kernels.options import DecodeOptions

BATCH, HEADS, KV_HEADS, SQ, SK, D, DV = 2, 2, 1, 6, 20, 16, 8
PARENTS = [-1, 0, 0, 1, 1, 2]
TILES = LaunchConfig(block_m=16, block_n=32)


def draw(*shape, dtype=torch.float32, seed=0):
    rng = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(shape, generator=rng, device="cpu").to(torch.get_default_device(), dtype)


def inputs(dtype=torch.float32, layout="bhsd"):
    shapes = ((BATCH, HEADS, SQ, D), (BATCH, KV_HEADS, SK, D), (BATCH, KV_HEADS, SK, DV))
    found = [draw(*shape, dtype=dtype, seed=n) for n, shape in enumerate(shapes)]
    if layout == "bshd":
        found = [x.transpose(1, 2).contiguous() for x in found]
    return [x.requires_grad_() for x in found]


def bits(*shape):
    return draw(*shape, seed=7) > 0


def lengths(*values):
    return torch.tensor(values, dtype=torch.int32)


BUCKETS = torch.tensor([1, 1, 0, 2, 3], dtype=torch.int32)
VARIANTS = {
    "plain": lambda dtype: {},
    "causal": lambda dtype: {"causal": "bottom-right", "scale": -0.5, "softcap": 3.0},
    "window": lambda dtype: {"window": (3, None), "causal": "top-left", "config": Configs(dq=TILES)},
    "lengths": lambda dtype: {"key_lengths": lengths(0, 13), "query_lengths": lengths(6, 4)},
    "prefix": lambda dtype: {"causal": "top-left", "prefix_lengths": lengths(4, 13)},
    "tree": lambda dtype: {"tree": TreeMask.from_parents(PARENTS, torch.get_default_device())},
    "bitmap": lambda dtype: {"bitmap": Bitmap.from_bool(bits(1, HEADS, SQ, SK)), "sink": draw(HEADS, seed=8)},
    "blocks": lambda dtype: {"blocks": BlockMask.from_bool(bits(BATCH, 1, 1, 2), rows=16, keys=16)},
    "alibi": lambda dtype: {"alibi_slopes": torch.tensor([0.5, 0.25]), "causal": "bottom-right"},
    "bias": lambda dtype: {"bias": draw(1, HEADS, SQ, SK, dtype=dtype, seed=9), "sink": draw(HEADS, seed=8)},
    "relative": lambda dtype: {
        "relative_bias": RelativeBias(draw(HEADS, 4, seed=10), BUCKETS),
        "causal": "bottom-right",
    },
    "dropout": lambda dtype: {"dropout": Dropout(0.3, seed=2**64 - 5, offset=2**32 - 1)},
}


def options_of(variant, dtype):
    options = VARIANTS[variant](dtype)
    for name in {"bias", "sink"} & options.keys():
        options[name].requires_grad_()
    if "relative_bias" in options:
        options["relative_bias"].table.requires_grad_()
    return options


def learned(options):
    """The tensors of the options that have a gradient."""
    relative = [options["relative_bias"].table] if "relative_bias" in options else []
    return [*(options[name] for name in ("bias", "sink") if name in options), *relative]


def gradients(outputs, tensors):
    outputs = [x for x in outputs if x.requires_grad]
    return torch.autograd.grad(outputs, tensors, [draw(*x.shape, dtype=x.dtype, seed=20) for x in outputs])


def compiled(function, **options):
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def same(got, wanted):
    return len(got) == len(wanted) and all(
        x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype and torch.equal(x, y)
        for x, y in zip(got, wanted, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
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


# Layout, dtype and options do not meet on the way through the operator: layouts and dtypes are seen in turn.
IN_TURN = ((torch.float16, "bshd"), (torch.float32, "bhsd"))
COMPILED = [("plain", *IN_TURN[1]), *((variant, *IN_TURN[n % 2]) for n, variant in enumerate(VARIANTS))]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "dtype", "layout"), COMPILED)
def test_compiled_attention_is_the_eager_one(variant, dtype, layout):
    tensors, options = inputs(dtype, layout), options_of(variant, dtype)
    call = functools.partial(attention, **options, layout=layout, return_lse=True)
    needed = [*tensors, *learned(options)]

    wanted, got = call(*tensors), compiled(call)(*tensors)

    assert same(got, wanted)
    assert same(gradients(got, needed), gradients(wanted, needed))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["plain", "causal", "tree"])
def test_compiled_packed_attention_is_the_eager_one(variant):
    cu_q, cu_k = lengths(0, 4, 6), lengths(0, 9, 20)
    q, k, v = (x.detach()[:1].transpose(1, 2).contiguous().requires_grad_() for x in inputs())
    options = {"dropout": Dropout(0.2)} if variant == "plain" else {"causal": "bottom-right", "window": (4, 0)}
    if variant == "tree":
        options = {"tree": TreeMask.from_parents([-1, 0, 0, 1, -1, 0], torch.get_default_device(), cu=cu_q)}

    def call(q, k, v, cu_q, cu_k):
        return attention_varlen(q[0], k[0], v[0], cu_q, cu_k, max_q=4, max_k=11, **options)

    wanted, got = call(q, k, v, cu_q, cu_k), compiled(call)(q, k, v, cu_q, cu_k)

    assert same(got, wanted)
    assert same(gradients(got, [q, k, v]), gradients(wanted, [q, k, v]))
    values = flatten(Options(packed=Packed(cu_q, cu_k, 4, 11), layout="bshd", **options))
    opcheck(ops.attention_forward.default, (q, k, v, *values))


def test_only_what_needs_a_gradient_gets_one():
    q, k, v = inputs()
    k.requires_grad_(False)
    call = functools.partial(attention, return_lse=True)
    for outputs in (slice(0, 1), slice(1, 2)):
        wanted, got = call(q, k, v), compiled(call)(q, k, v)

        assert same(gradients(got[outputs], [q, v]), gradients(wanted[outputs], [q, v]))
    sink = draw(HEADS).requires_grad_()
    tensors = [x.detach() for x in (q, k, v)]
    wanted, got = call(*tensors, sink=sink), compiled(call)(*tensors, sink=sink)

    assert same(gradients(got, [sink]), gradients(wanted, [sink]))


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


def test_dynamic_sizes_compile_once():
    def call(q, k, v):
        return attention(q, k, v, causal="bottom-right", return_lse=True)

    count = 0

    def backend(graph, example):
        nonlocal count
        count += 1
        return graph

    torch.compiler.reset()
    dynamic = torch.compile(call, fullgraph=True, backend=backend, dynamic=True)
    for batch, sq, sk in ((2, 6, 20), (3, 18, 33), (5, 40, 7)):
        tensors = draw(batch, 2, sq, D), draw(batch, 2, sk, D), draw(batch, 2, sk, D)
        for x in tensors:
            torch._dynamo.mark_dynamic(x, (0, 2))

        assert same(dynamic(*tensors), call(*tensors))
    assert count == 1


def test_offsets_of_dropout_do_not_compile_anew_without_end():
    def call(q, k, v, seed, offset):
        return attention(q, k, v, dropout=Dropout(0.5, seed=seed, offset=offset))

    tensors, step = [x.detach() for x in inputs()], compiled(call)
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        for offset in range(5):
            assert torch.equal(step(*tensors, 3, offset), call(*tensors, 3, offset))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["plain", "causal", "window", "lengths", "tree", "bitmap", "paged"])
def test_decode_compiles_and_passes_opcheck(variant):
    q, k, v = (x.detach() for x in inputs())
    options = {} if variant == "paged" else options_of(variant, torch.float32)
    for name in {"config", "softcap", "query_lengths", "sink", "bitmap"} & options.keys():
        del options[name]
    if variant == "paged":
        k, v = (x.reshape(10, 4, KV_HEADS, -1) for x in (k, v))
        table = torch.randperm(10, generator=torch.Generator("cpu").manual_seed(0), device="cpu")
        options = {"block_table": table.reshape(2, 5).to(torch.get_default_device(), torch.int32), "config": TILES}
    if variant == "bitmap":
        options["tree"] = Bitmap.from_bool(bits(1, 1, SQ, SQ))
    call = functools.partial(decode, **options, n_splits=2, return_lse=True)

    assert same(compiled(call)(q, k, v), call(q, k, v))
    opcheck(ops.decode.default, (q, k, v, *flatten_decode(DecodeOptions(**options))))


def test_merge_compiles_and_passes_opcheck():
    o, lse = draw(3, 2, 2, 5, 8, dtype=torch.float16), draw(3, 2, 2, 5, seed=1)
    lse[0, 0] = -math.inf
    o, lse = o.transpose(3, 4).contiguous().transpose(3, 4).requires_grad_(), lse.requires_grad_()
    wanted, got = merge(o, lse), compiled(merge)(o, lse)

    assert same(got, wanted)
    assert same(gradients(got, [o, lse]), gradients(wanted, [o, lse]))
    opcheck(ops.merge.default, (o, lse, False))
    tangents = draw(2, 2, 5, 8, dtype=torch.float16), draw(2, 2, 5)
    for needs in ([True, True], [False, True]):
        opcheck(ops.merge_backward.default, (*tangents, o.detach(), lse.detach(), needs))


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


def test_shapes_are_checked_while_compiling_and_values_at_the_launch():
    q, k, v = (x.detach() for x in inputs())
    with pytest.raises(Exception, match="k: expected shape"):
        compiled(attention)(q, k[:, :, :7], v)
    with pytest.raises(ValueError, match="key_lengths: expected values from 0 to 20"):
        compiled(attention)(q, k, v, key_lengths=lengths(3, 21))


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
