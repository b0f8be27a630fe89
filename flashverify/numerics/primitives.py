"""Error models of the hardware primitives that attention is built from, per architecture (docs/bounds.md, sections 1 and 2).

Sources: MMA-Sim (arXiv 2511.10909), Khattak and Mikaitis (arXiv 2512.07004), Fasi et al. (PeerJ CS 330) and FTTN (arXiv 2403.00232) for
tensor cores; PTX ISA 9.7.3 for `ex2.approx`, `lg2.approx`, `tanh.approx` and `div.full`.
"""

import math
from dataclasses import dataclass

from flashverify.formats import FORMATS

__all__ = [
    "AGNOSTIC",
    "ARCHITECTURES",
    "DIV_EPS",
    "EX2_EPS",
    "LG2_EPS",
    "POLY_EPS",
    "TANH_APPROX_EPS",
    "TANH_EPS",
    "Architecture",
    "architecture_of",
    "dot_coefficient",
    "operand_error",
]

_U32 = 2.0**-24

# ex2.approx.f32 is within 2 ulp of the correctly rounded 2^t: 2.5 ulp, 5u relative.
EX2_EPS = 5.0 * _U32
# Polynomial exponentials: FlashAttention-4's cubic shows 1471u, PyTorch's CPU flash in 16-bit dtypes about 1.6e3 u.
POLY_EPS = 1600.0 * _U32
# lg2.approx.f32: 2^-22 absolute on (0.5, 2), 2^-22 relative elsewhere.
LG2_EPS = 2.0**-22
# div.full.f32: 2 ulp.
DIV_EPS = 4.0 * _U32
# tanh of libdevice and of a libm: 2 ulp. tanh.approx.f32: 2^-11 relative.
TANH_EPS = 4.0 * _U32
TANH_APPROX_EPS = 2.0**-11


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How the matrix unit of an architecture adds.

    One step aligns `block` exact products and the accumulator on the grid `2^(emax - fraction_bits)`, truncating toward zero, adds them exactly
    and truncates the sum to fp32.

    Attributes:
        name: `"sm_90"` and the like, or `"ieee"`: a chain of fp32 fused multiply-adds rounded to nearest, no matrix unit.
        fraction_bits: F; 0 where there is no matrix unit.
        block: Products a step for 16-bit operands.
        block_tf32: Products a step for tf32 operands; 0 where there are none.
    """

    name: str
    fraction_bits: int
    block: int
    block_tf32: int

    def per_product(self, tf32: bool) -> float:
        """Relative loss a product, `(k 2^-F + 2^-23) / k`."""
        block = self.block_tf32 if tf32 else self.block
        return (block * 2.0**-self.fraction_bits + 2.0**-23) / block if block else 0.0


ARCHITECTURES: dict[str, Architecture] = {
    entry.name: entry
    for entry in (
        Architecture(name="ieee", fraction_bits=0, block=0, block_tf32=0),
        Architecture(name="sm_70", fraction_bits=23, block=4, block_tf32=0),
        Architecture(name="sm_75", fraction_bits=24, block=4, block_tf32=0),
        # The k = 16 instruction of Ampere is two steps of 8, its tf32 k = 8 two steps of 4.
        Architecture(name="sm_80", fraction_bits=24, block=8, block_tf32=4),
        Architecture(name="sm_86", fraction_bits=24, block=8, block_tf32=4),
        Architecture(name="sm_89", fraction_bits=24, block=8, block_tf32=4),
        Architecture(name="sm_90", fraction_bits=25, block=16, block_tf32=8),
        Architecture(name="sm_100", fraction_bits=25, block=16, block_tf32=8),
    )
}

AGNOSTIC = "agnostic"


def architecture_of(name: str) -> tuple[Architecture, ...]:
    """Return the architectures whose maximum holds for `name`.

    Args:
        name: A key of `ARCHITECTURES`; anything else, `"agnostic"` included, means all of them.

    Returns:
        One architecture, or all.
    """
    known = ARCHITECTURES.get(name)
    return (known,) if known is not None else tuple(ARCHITECTURES.values())


def dot_coefficient(K: int, *, dtype: str, dot: str = "ieee", architecture: str = AGNOSTIC, parts: int = 1) -> float:
    """Coefficient D(K) of a dot product in fp32: `|fl(sum a b + C) - exact| <= D(K) (|C| + sum |a||b|)`.

        D(K) = A(K) (1 + E) + E,   A(K) = expm1(max(ceil(K / k) (k 2^-F + 2^-23), K u))

    Every step loses at most `k 2^-F + 2^-23` of the running sum of magnitudes, which it may itself enlarge by that factor: `(1 + t)^n - 1 <=
    expm1(n t)`, finite at every length. Truncation is biased toward zero, so the worst case grows like K, never like sqrt(K). Steps of the last,
    partly filled block lose nothing in the padding, and blocks of every instruction shape divide the steps counted here.

    Args:
        K: Number of products, at least 0.
        dtype: Operands, `"fp16"`, `"bf16"`, `"fp32"`, or `"fp64"` for the oracle's own dots.
        dot: For fp32 operands: `"ieee"` (fp32 FMA), `"tf32"` (operands truncated: E = 2^-9 + 2^-20) or `"tf32x3"` (three chained dots over split
            operands: E = 5 2^-22). Without effect on the others.
        architecture: A name of `ARCHITECTURES`; others get the largest coefficient.
        parts: Equal parts of the sum that never share a step, such as the heads of a group.

    Returns:
        D(K), dimensionless.
    """
    if K <= 0:
        return 0.0
    u = FORMATS["fp64" if dtype == "fp64" else "fp32"].u
    t = K * u
    tf32 = dtype == "fp32" and dot != "ieee"
    if FORMATS[dtype].narrow or tf32:
        for entry in architecture_of(architecture):
            block = entry.block_tf32 if tf32 else entry.block
            if block:
                steps = parts * math.ceil(math.ceil(K / parts) / block) * (3 if tf32 and dot == "tf32x3" else 1)
                t = max(t, steps * block * entry.per_product(tf32))
    A = math.expm1(min(t, 700.0))
    E = operand_error(dtype, dot)
    return A * (1 + E) + E


def operand_error(dtype: str, dot: str) -> float:
    """E of `dot_coefficient`: what a product loses because its operands are cut; the arguments are those of `dot_coefficient`."""
    return {"ieee": 0.0, "tf32": 2.0**-9 + 2.0**-20, "tf32x3": 5 * 2.0**-22}[dot] if dtype == "fp32" else 0.0
