"""Proof at start-up that a session computes what compiled kernels compute: one small kernel, judged by torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from flashverify.errors import SelfCheckError, UsageError
from flashverify.interpreter.session import active

if TYPE_CHECKING:
    from flashverify.interpreter.session import Session

__all__ = ["self_test"]

_PROGRAMS = 3
_TILE = 256


def _probe(
    f_ptr: Any,
    a_ptr: Any,
    b_ptr: Any,
    bf16_ptr: Any,
    fp16_ptr: Any,
    arithmetic_ptr: Any,
    dot_ptr: Any,
    tf32_ptr: Any,
    top_ptr: Any,
    turns_ptr: Any,
) -> None:
    """Casts, arithmetic, products, a maximum over NaN and a loop that each program leaves after another turn."""
    p = tl.program_id(0)
    i = p * 256 + tl.arange(0, 256)
    f = tl.load(f_ptr + i)
    tl.store(bf16_ptr + i, f.to(tl.bfloat16))
    tl.store(fp16_ptr + i, f.to(tl.float16))
    tl.store(top_ptr + p, tl.max(f, 0))
    r = tl.arange(0, 16)
    at = p * 256 + r[:, None] * 16 + r[None, :]
    a = tl.load(a_ptr + at)
    b = tl.load(b_ptr + at)
    tl.store(arithmetic_ptr + at, a * b + a)
    tl.store(dot_ptr + at, tl.dot(a, tl.trans(b)))
    unit = tl.where(r[:, None] == r[None, :], 1.0, 0.0)
    tl.store(tf32_ptr + at, tl.dot(tl.load(f_ptr + at), unit, input_precision="tf32"))
    n = 0
    while n < p:
        n += 1
    tl.store(turns_ptr + p, n)


_kernel = triton.jit(_probe)


def _inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """fp32 patterns around every kind of rounding to bf16 and fp16, and bf16 tiles of small multiples of 1/8."""
    n = torch.arange(_PROGRAMS * _TILE, dtype=torch.int64)
    bits = (n * 2654435761 + 12345) % 2**32
    bits[::3] = bits[::3] & 0xFFFF0000 | 0x8000  # ties of bf16
    bits[1::3] = bits[1::3] & 0x8FFFE000 | 0x38001000  # ties of fp16 in its normal and subnormal range
    # the first tile has no infinities or NaN to spoil the products of tf32
    first = bits[:_TILE]
    first[((first >> 23) & 0xFF) == 0xFF] = 0x3F801FFF
    bits[_TILE : _TILE + 4] = torch.tensor([0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x00000001])
    bits[-_TILE:] = 0x7FC00000
    patterns = torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32).view(torch.float32)
    tile = ((n * 37 % 41 - 20).float() / 8, (n * 53 % 43 - 21).float() / 8)
    return patterns, tile[0].bfloat16(), tile[1].bfloat16()


def _expected(f: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    shape = (_PROGRAMS, 16, 16)
    product = a.double().reshape(shape) @ b.double().reshape(shape).mT
    tiles = f.reshape(_PROGRAMS, _TILE)
    top = tiles.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf).amax(1)
    return {
        "bf16": f.bfloat16(),
        "fp16": f.half(),
        "arithmetic": a * b + a,
        "dot": product.float().flatten(),
        "tf32": (f[:_TILE].view(torch.int32) & ~0x1FFF).view(torch.float32),
        "top": torch.where(tiles.isnan().all(1), torch.nan, top),
        "turns": torch.arange(_PROGRAMS, dtype=torch.int32),
    }


def _computed(f: torch.Tensor, a: torch.Tensor, b: torch.Tensor, expected: dict[str, torch.Tensor]) -> Any:
    outputs = {name: torch.empty_like(tensor) for name, tensor in expected.items()}
    outputs["tf32"] = torch.empty_like(f)
    _kernel[(_PROGRAMS,)](f, a, b, **{f"{name}_ptr": tensor for name, tensor in outputs.items()})
    outputs["tf32"] = outputs["tf32"][:_TILE]
    return outputs


def self_test(session: Session | None = None) -> None:
    """Run the probe in lockstep and one program at a time, and compare every element with torch.

    Args:
        session: the open one by default.

    Raises:
        UsageError: no session is open.
        SelfCheckError: an element differs; the message names what was computed and how.
    """
    session = session or active()
    if session is None:
        raise UsageError("the self-test needs an open session")
    inputs = _inputs()
    expected = _expected(*inputs)
    before = (session.lockstep, session.launches, session.attempts)
    given_up = session.fallbacks.copy()
    try:
        for lockstep in (True, False):
            session.lockstep = lockstep
            outputs = _computed(*inputs, expected)
            for name, want in expected.items():
                got = outputs[name]
                bad = ~((got == want) | ((got != got) & (want != want)))
                if bad.any():
                    where = int(bad.nonzero()[0, 0])
                    raise SelfCheckError(
                        f"the interpreter computes {name} wrongly ({'in lockstep' if lockstep else 'one program at a time'}): "
                        f"element {where} is {got[where].item()!r}, not {want[where].item()!r}"
                    )
    finally:
        session.lockstep, session.launches, session.attempts = before
    if session.fallbacks != given_up:
        raise SelfCheckError(f"lockstep gave up on the self-test: {dict(session.fallbacks - given_up)}")
