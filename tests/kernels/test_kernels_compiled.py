"""`torch.compile` over the kernels against eager calls, bit for bit."""

import functools
import math

import pytest
import torch
from torch.library import opcheck

from flashverify_kernels import (
    Bitmap,
    Dropout,
    Options,
    Packed,
    TreeMask,
    attention,
    attention_varlen,
    decode,
    merge,
)
from flashverify_kernels.dispatch import ops
from flashverify_kernels.flatten import flatten, flatten_decode
from flashverify_kernels.options import DecodeOptions
from tests.kernels.library_calls import HEADS, KV_HEADS, SQ, TILES, VARIANTS, D, bits, draw, inputs, lengths, options_of


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


# Layout, dtype and options do not meet on the way through the operator: layouts and dtypes are seen in turn.
IN_TURN = ((torch.float16, "bshd"), (torch.float32, "bhsd"))
COMPILED = [("plain", *IN_TURN[1]), *((variant, *IN_TURN[n % 2]) for n, variant in enumerate(VARIANTS))]
# Numbers, tuples, tensors and each kind of object with tensors; the others are of these kinds, and their operators pass opcheck.
TRACED = {"causal", "window", "lengths", "tree", "bitmap", "relative", "dropout"}


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("variant", "dtype", "layout"),
    [pytest.param(*x, marks=[] if x[0] in TRACED else [pytest.mark.thorough]) for x in COMPILED],
)
def test_compiled_attention_is_the_eager_one(variant, dtype, layout):
    tensors, options = inputs(dtype, layout), options_of(variant, dtype)
    call = functools.partial(attention, **options, layout=layout, return_lse=True)
    needed = [*tensors, *learned(options)]

    wanted, got = call(*tensors), compiled(call)(*tensors)

    assert same(got, wanted)
    assert same(gradients(got, needed), gradients(wanted, needed))


@pytest.mark.slow
@pytest.mark.one_in(2)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_offsets_of_dropout_do_not_compile_anew_without_end():
    def call(q, k, v, seed, offset):
        return attention(q, k, v, dropout=Dropout(0.5, seed=seed, offset=offset))

    tensors, step = [x.detach() for x in inputs()], compiled(call)
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        for offset in range(5):
            assert torch.equal(step(*tensors, 3, offset), call(*tensors, 3, offset))


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "variant",
    [
        *("lengths", "tree", "bitmap", "paged"),
        *(pytest.param(x, marks=pytest.mark.thorough) for x in ("plain", "causal", "window")),
    ],
)
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


@pytest.mark.slow
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


def test_shapes_are_checked_while_compiling_and_values_at_the_launch():
    q, k, v = (x.detach() for x in inputs())
    with pytest.raises(Exception, match="k: expected shape"):
        compiled(attention)(q, k[:, :, :7], v)
    with pytest.raises(ValueError, match="key_lengths: expected values from 0 to 20"):
        compiled(attention)(q, k, v, key_lengths=lengths(3, 21))
