"""The bundled kernels: the same bits from a session and in lockstep, and from the stock interpreter up to the order of its sums."""

import functools

import numpy as np
import pytest
import torch

from flashverify.interpreter import session
from flashverify_kernels import Configs, LaunchConfig, Options, TreeMask
from flashverify_kernels.launch import backward, forward
from tests.fast_tier import fast_one_in

CASES = {
    "plain": {},
    "top-left": {"causal": "top-left"},
    "bottom-right": {"causal": "bottom-right", "sk": 53},
    "lengths": {"key_lengths": [0, 29], "dlse": True},
    "causal with lengths": {"causal": "bottom-right", "key_lengths": [37, 11]},
    "tree": {"tree": True, "sk": 44},
    "wide": {"d": 40, "dv": 24, "kv_heads": 1, "causal": "top-left", "sk": 70},
}


def run(
    dtype, *, sq=37, sk=37, d=16, dv=16, kv_heads=2, causal=None, key_lengths=None, tree=False, dlse=False, **options
):
    generator = torch.Generator().manual_seed(0)
    q, k, v, do = (
        torch.randn(2, h, s, c, generator=generator).to(dtype)
        for h, s, c in ((2, sq, d), (kv_heads, sk, d), (kv_heads, sk, dv), (2, sq, dv))
    )
    gradient = torch.randn(2, 2, sq, generator=generator) if dlse else None
    config = LaunchConfig(block_m=16, block_n=16)
    options = Options(
        causal=causal,
        key_lengths=None if key_lengths is None else torch.tensor(key_lengths, dtype=torch.int32),
        tree=TreeMask.from_parents([-1, *(n * 5 % n if n > 6 else n // 2 for n in range(sq - 1))]) if tree else None,
        config=Configs(forward=config, dq=config, dkdv=config),
        allow_interpreted_bf16=True,
        **options,
    )
    result = forward(q, k, v, options)
    gradients = backward(do, q, k, v, result.o, result.lse2, options, dlse=gradient)
    return [result.o, result.lse2, gradients.dq, gradients.dk, gradients.dv, gradients.delta], (q, k, v, do)


def same_bits(one, other):
    return all(
        torch.equal(
            a.view(torch.int16 if a.itemsize == 2 else torch.int32),
            b.view(torch.int16 if a.itemsize == 2 else torch.int32),
        )
        for a, b in zip(one, other, strict=True)
    )


@functools.cache
def own_runs(dtype, name):
    """The outputs of a session that runs one program at a time, and of one in lockstep."""
    results = []
    for lockstep in (False, True):
        with session(lockstep=lockstep) as opened:
            results.append(run(dtype, **CASES[name])[0])
        assert not opened.fallbacks
        assert (opened.attempts >= opened.launches == 4) is lockstep
    return results


# A case of each dtype, with a mask and with tiles of other sizes; the others are thorough.
OF_STOCK = (
    ("causal with lengths", torch.float32),
    ("wide", torch.float16),
)
STOCK = [
    pytest.param(dtype, name, id=f"{dtype}-{name}", marks=[] if (name, dtype) in OF_STOCK else [pytest.mark.thorough])
    for dtype in (torch.float16, torch.float32)
    for name in CASES
]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "name"), STOCK)
def test_the_same_bits_stock_alone_and_in_lockstep(dtype, name, stock_run, monkeypatch):
    """Stock reads operands as they lie, and a BLAS may add in another order for a transposed one: here it reads copies."""
    matmul = np.matmul

    def of_copies(x, y, dtype=None):
        return matmul(np.ascontiguousarray(x, dtype), np.ascontiguousarray(y, dtype))

    with monkeypatch.context() as patch:
        patch.setattr(np, "matmul", of_copies)
        stock = stock_run(lambda: run(dtype, **CASES[name])[0])

    alone, together = own_runs(dtype, name)
    assert same_bits(alone, together)
    assert stock is None or same_bits(stock, together)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("dtype", "unit", "name"),
    [  # the order of sums depends on shapes alone
        (torch.float16, 2.0**-11, "wide"),
        (torch.float32, 2.0**-24, "causal with lengths"),
        pytest.param(torch.float16, 2.0**-11, "plain", marks=pytest.mark.thorough),
        pytest.param(torch.float32, 2.0**-24, "plain", marks=pytest.mark.thorough),
    ],
)
def test_stock_as_it_comes_differs_by_the_order_of_its_sums_at_most(dtype, unit, name, stock_run):
    stock = stock_run(lambda: run(dtype, **CASES[name])[0])

    for one, other in zip(stock or (), own_runs(dtype, name)[0], strict=False):
        finite = other.isfinite()
        assert torch.equal(one[~finite], other[~finite])
        assert (one - other)[finite].abs().max() <= 16 * unit * other[finite].abs().max()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.thorough] * (x not in dict(OF_STOCK))) for x in CASES]
)
def test_bf16_has_the_same_bits_alone_and_in_lockstep(name):
    results = []
    for lockstep in (False, True):
        with session(lockstep=lockstep) as opened:
            results.append(run(torch.bfloat16, **CASES[name])[0])
        assert not opened.fallbacks

    assert same_bits(*results)


@pytest.mark.parametrize(
    ("dtype", "unit"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11), (torch.float32, 2.0**-24)]
)
def test_outputs_are_those_of_float64(dtype, unit):
    with session():
        (o, lse2, dq, dk, dv, _), inputs = run(dtype)

    q, k, v, do = (x.double().requires_grad_() for x in inputs)
    s = q @ k.mT / 4
    want = s.softmax(-1) @ v
    want.backward(do)
    for got, exact in (
        (o, want),
        (lse2, s.logsumexp(-1) * 1.4426950408889634),
        (dq, q.grad),
        (dk, k.grad),
        (dv, v.grad),
    ):
        assert (got - exact).abs().max() <= 16 * unit * exact.abs().max()


@pytest.mark.parametrize("precision", fast_one_in(2, ["tf32", "tf32x3"]))
def test_tf32_has_the_same_bits_alone_and_in_lockstep(precision):
    results = []
    for lockstep in (False, True):
        with session(lockstep=lockstep):
            results.append(run(torch.float32, precision=precision)[0])
    with session():
        exact = run(torch.float32)[0]

    assert same_bits(*results)
    assert not same_bits(results[0], exact)
