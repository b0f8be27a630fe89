"""Numerics of a GPU for an interpreted run: truncating tensor cores, and the approximate exp2, log2 and division of PTX.

    with faithful(*mode("h100").layers):

What hardware leaves open within its documented error (PTX ISA 9.7.3) is filled in deterministically: a shift of so many ulp,
the same everywhere or by a hash of the bits of the operand. Tensor cores follow MMA-Sim (arXiv 2511.10909) and Khattak and
Mikaitis (arXiv 2512.07004); fp8 is left as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashverify.errors import UsageError
from flashverify.formats import FORMATS
from flashverify.interpreter.formats import fma, toward_zero
from flashverify.interpreter.hooks import handle
from flashverify.interpreter.layer import Layer
from flashverify.interpreter.session import active

__all__ = ["IEEE", "MODES", "Hardware", "Mode", "TensorCore", "current", "mode", "truncating_dot"]

Array = Any

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_EXPONENT = np.int64(0x7FF0000000000000)
_LEAST = {f.library: f.min_normal for f in FORMATS.values() if f.narrow} | {"tf32": FORMATS["fp32"].min_normal}
"""Smallest power of two that an operand is aligned by: subnormal ones are not normalised."""
_NORMAL = 2.0**-126
_ELEMENTS = 1 << 18
"""Products that are held at once."""


@dataclass(frozen=True, slots=True)
class TensorCore:
    """How a tensor core adds.

    Attributes:
        fraction_bits: F: a step adds on the grid `2^(emax - F)`.
        step: products a step for 16-bit operands.
        step_tf32: products a step for tf32 operands.
    """

    fraction_bits: int
    step: int
    step_tf32: int


def _power(x: Array, least: float) -> Array:
    """The power of two in an fp64 value, at least `least`; 0 of 0."""
    found = (x.view(np.int64) & _EXPONENT).view(_F64)
    return np.where(x == 0, 0.0, np.maximum(found, least))


def truncating_dot(x: Array, y: Array, acc: Array, core: TensorCore, kind: str) -> Array:
    """The product x @ y + acc as a tensor core computes it.

    Step by step, the exact products and the accumulator are truncated toward zero on the grid `2^(emax - F)`, added exactly,
    and the sum is truncated to fp32; emax is the largest exponent among them, that of a product being the sum of those of its
    operands.

    Args:
        x: `[..., M, K]` fp32, of values that fit `kind`.
        y: `[..., K, N]`, likewise.
        acc: fp32, broadcast to `[..., M, N]`.
        core: the tensor core.
        kind: "float16", "bfloat16" or "tf32".

    Returns:
        `[..., M, N]` fp32.
    """
    shape = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2], np.shape(acc)[:-2]), x.shape[-2], y.shape[-1])
    total = np.broadcast_to(acc, shape).astype(_F32)
    step = core.step_tf32 if kind == "tf32" else core.step
    if len(shape) > 2 and math.prod(shape) * step > _ELEMENTS:
        x, y = (np.broadcast_to(z, (*shape[:-2], *z.shape[-2:])) for z in (x, y))
        return np.stack([truncating_dot(x[n], y[n], total[n], core, kind) for n in range(shape[0])])
    x, y = x.astype(_F64), y.astype(_F64)
    power_x, power_y = _power(x, _LEAST[kind]), _power(y, _LEAST[kind])
    for k in range(0, x.shape[-1], step):
        part = slice(k, k + step)
        products = x[..., :, part, None] * y[..., None, part, :]
        total = _step(products, (power_x[..., :, part, None] * power_y[..., None, part, :]).max(-2), total, core)
    return total


def _step(products: Array, power: Array, total: Array, core: TensorCore) -> Array:
    """One step: `products` `[..., M, step, N]` added to `total` `[..., M, N]`."""
    addend = total.astype(_F64)
    top = np.maximum(power, _power(addend, _NORMAL))
    scale = 2.0**core.fraction_bits / np.maximum(top, _NORMAL)
    exact = np.trunc(products * scale[..., None, :]).sum(-2) + np.trunc(addend * scale)
    added = exact / scale
    special = ~np.isfinite(top)
    if special.any():
        added = np.where(special, products.sum(-2) + addend, added)
    return np.where(np.abs(added) >= 2.0**128, added, toward_zero(added, _F32)).astype(_F32)


def _hash(bits: Array) -> Array:
    """A shift of -2 to 2 for each 32-bit pattern."""
    mixed = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x7FEB352D)
    mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x846CA68B)
    return ((mixed ^ (mixed >> np.uint32(16))) % np.uint32(5)).astype(np.int64) - 2


def _moved(x: Array, ulps: Array) -> Array:
    """Positive fp32 values moved by so many representable numbers; 0, infinities and NaN stay."""
    bits = x.view(np.int32).astype(np.int64) + ulps
    moved = np.clip(bits, 0, 0x7F800000).astype(np.int32).view(_F32)
    return np.where((x > 0) & np.isfinite(x), moved, x)


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < np.float32(_NORMAL), np.copysign(np.float32(0), x), x)


class Hardware(Layer):
    """The arithmetic of a GPU where it differs from IEEE's.

    Attributes:
        core: the tensor core.
        ulps: error of approximate operations; None is by a hash of the operand, from -2 to 2.
        mode: the mode that this layer is of.
    """

    core: ClassVar[TensorCore]
    ulps: ClassVar[int | None]
    mode: ClassVar[Mode]

    def accumulate(self, x: Any, y: Any, acc: Any, kind: str) -> Any:
        """Tensor cores truncate; fp32 is a chain of fused multiply-adds, the accumulator first."""
        if kind in _LEAST:
            return truncating_dot(x, y, acc, self.core, kind)
        if kind != "float32":
            return super().accumulate(x, y, acc, kind)
        total = acc
        for k in range(x.shape[-1]):
            total = fma(x[..., :, k, None], y[..., None, k, :], total)
        return total

    def _ulps(self, bits: Array) -> Array:
        return _hash(bits) if self.ulps is None else np.int64(self.ulps)

    def create_exp2(self, arg: Any) -> Any:
        """ex2.approx.ftz.f32: 2 ulp from the correctly rounded result; exact at 0, as documented."""
        if arg.data.dtype != _F32:
            return super().create_exp2(arg)
        x = _flushed(arg.data)
        near = np.exp2(x.astype(_F64)).astype(_F32)
        moved = _flushed(_moved(near, self._ulps(x.view(np.uint32))))
        return handle(np.where(x == 0, np.float32(1), moved), arg.dtype.scalar)

    def create_exp(self, arg: Any) -> Any:
        """fl(x log2 e), then ex2.approx, as Triton lowers it."""
        if arg.data.dtype != _F32:
            return super().create_exp(arg)
        return self.create_exp2(handle(arg.data * np.float32(math.log2(math.e)), arg.dtype))

    def create_log2(self, arg: Any) -> Any:
        """lg2.approx.ftz.f32: 2^-22 absolute on (0.5, 2), relative elsewhere; exact at 1."""
        if arg.data.dtype != _F32:
            return super().create_log2(arg)
        x = _flushed(arg.data)
        exact = np.log2(x.astype(_F64))
        size = np.where((x > 0.5) & (x < 2), 1.0, np.abs(exact))
        # what remains of the bound after the rounding to fp32
        moved = exact + self._ulps(x.view(np.uint32)) / 2 * size * (2.0**-22 - 2.0**-24)
        return handle(np.where(np.isfinite(exact) & (x != 1), moved, exact).astype(_F32), arg.dtype.scalar)

    def create_fdiv(self, lhs: Any, rhs: Any) -> Any:
        """div.full.f32: 2 ulp from the exact quotient."""
        if lhs.data.dtype != _F32:
            return super().create_fdiv(lhs, rhs)
        exact = lhs.data.astype(_F64) / rhs.data.astype(_F64)
        # from the neighbour of the quotient on the other side: the rounding does not add to the error
        size = np.abs(exact)
        low = toward_zero(np.where(size < 2.0**128, size, 0.0), _F32)
        high = np.where(low.astype(_F64) < size, np.nextafter(low, np.float32(np.inf)), low)
        shift = self._ulps(exact.astype(_F32).view(np.uint32))
        moved = np.copysign(_moved(np.where(shift > 0, low, high), shift).astype(_F64), exact)
        plain = (shift == 0) | (size >= 2.0**128) | (size < _NORMAL) | np.isnan(exact)
        return handle(np.where(plain, exact, moved).astype(_F32), lhs.dtype.scalar)


@dataclass(frozen=True, slots=True)
class Mode:
    """Numerics of an interpreted run.

    Attributes:
        name: of the option.
        architecture: of a `Form`.
        layers: mixins of the session.
    """

    name: str
    architecture: str
    layers: tuple[type[Layer], ...] = ()


IEEE = Mode("ieee", "ieee")
"""Every operation rounded to nearest; a dot is a chain of fp32 operations in no particular order."""

_CORES = {"h100": ("sm_90", TensorCore(25, 16, 8)), "a100": ("sm_80", TensorCore(24, 8, 4))}
_ERRORS: dict[str, int | None] = {"": None, "+2ulp": 2, "-2ulp": -2, "+0ulp": 0}


def _made(name: str, architecture: str, core: TensorCore, ulps: int | None) -> Mode:
    layer = type("Hardware", (Hardware,), {"core": core, "ulps": ulps})
    made = Mode(name, architecture, (layer,))
    layer.mode = made  # type: ignore[attr-defined]
    return made


MODES: dict[str, Mode] = {"ieee": IEEE} | {
    gpu + error: _made(gpu + error, architecture, core, ulps)
    for gpu, (architecture, core) in _CORES.items()
    for error, ulps in _ERRORS.items()
}
"""By name: a GPU, and the error of its approximate operations where it is the same everywhere."""


def mode(name: str) -> Mode:
    """The mode of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in MODES:
        raise UsageError(f"numerics={name!r} is not accepted: one of {', '.join(MODES)}")
    return MODES[name]


def current() -> Mode:
    """The mode of the open session."""
    opened = active()
    found = getattr(opened.plain_class, "mode", IEEE) if opened is not None else IEEE
    return found if isinstance(found, Mode) else IEEE
