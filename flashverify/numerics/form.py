"""The numerical form of a kernel: which exponential, what is rounded where (docs/bounds.md, section 20)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NoReturn

from flashverify.formats import DTYPES
from flashverify.numerics.primitives import AGNOSTIC, EX2_EPS, POLY_EPS
from flashverify.numerics.quantised import WEIGHT_FORMATS

__all__ = ["Form"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "exp": ("ex2", "exp", "poly"),
    "prescale_fwd": ("none", "q", "k"),
    "prescale_bwd": ("none", "q", "k"),
    "ds_from": ("p_fp32", "p_rounded"),
    "scale_ds": ("after", "operand", "before"),
    "row_sum": ("unrounded", "rounded"),
    "bwd_lse_base": ("2", "e"),
    "lse_base": ("e", "2"),
    "normalise": ("end", "every_block", "before_cast", "lse", "lse_weights"),
    "s_dtype": ("fp32", "input"),
    "pv_dtype": ("fp32", "input"),
    "dp_dtype": ("fp32", "input"),
    "o_accum": DTYPES,
    "dp_init": ("zero", "minus_delta"),
    "delta_from": ("unknown", "o", "o_fp32", "p"),
    "p_from": ("unknown", "lse", "forward"),
    "partials": ("computed", "given"),
    "partial_dtype": DTYPES,
    "partial_lse_base": ("2", "e"),
    "grad_accum": DTYPES,
    "grad_accum_of": ("dq", "dkv", "all"),
    "gqa_partial": ("fp32", "input"),
    "dropout_scale": ("fp32", "input"),
    "dbias_partial": ("fp32", "input"),
    "softcap": ("exp", "tanh", "approx"),
    "softcap_slope": ("square", "product"),
    "max_source": ("exponent", "apart"),
    "key_order": ("unknown", "ascending"),
    "stored_delta": ("plain", "minus_dlse"),
    "empty_row_lse": ("none", "sink"),
    "dequantised": ("unknown", "operand", "narrow", "folded"),
    "products": ("input", "fp8_pv", "fp8_qk", "fp8"),
    "dot": ("ieee", "tf32", "tf32x3"),
}
_OPTIONAL = {"out_dtype": DTYPES, "grad_dtype": DTYPES, "p_dtype": tuple(WEIGHT_FORMATS)}
_FLAGS = ("grad_uses_prescaled", "k_smoothed", "masked_ds", "v_scale_last")
# A P tile that was not rescaled reaches 2^tau and must survive its cast to fp16.
_MAX_TAU = 15.0
_NUMBERS = (
    ("gap_c", 0.0, 1e3),
    ("kappa", 0.0, 1e3),
    ("kappa_bias", 0.0, 1e3),
    ("rescale_threshold", 0.0, _MAX_TAU),
    ("exp_eps", 0.0, 2.0**20),
    ("p_factor", 2.0**-16, 2.0**16),
)
_COUNTS = ("block_n", "n_blocks", "n_splits", "n_merges", "grad_adds", "grad_parts", "fp8_chain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a kernel computes attention, as far as its rounding errors depend on it. The defaults are the safe reading of a kernel that declares nothing.

    Attributes:
        exp: `"ex2"` (exponent in base 2, 5u), `"exp"` (`tl.exp`, libm; 5u, the natural exponent costs 2u|t| more, which gap_c = 3 holds) or
            `"poly"` (1600u).
        exp_eps: Relative error of the exponential in units of u = 2^-24; None for the default of `exp`.
        gap_c: Roundings of the exponent in units of `u |S - m|`: 1 for a bare subtraction, 3 with a conversion to base 2 after it.
        rescale_threshold: tau, in base 2: the accumulator is rescaled only when the maximum grows by more.
        prescale_fwd: Operand that is multiplied by `scale log2(e)` in the input dtype before the forward dot.
        prescale_bwd: The same in the backward.
        grad_uses_prescaled: dQ (prescale_bwd = "k") or dK ("q") is computed from the prescaled operand.
        ds_from: dS = P X takes the fp32 P or the one that was rounded for the dV dot.
        masked_ds: dS of a pair that the mask removes is set to 0, so that an overflow of its dP reaches nothing.
        stored_delta: What a returned delta holds: `rowsum(dO * O)`, or that minus dLSE, 0 in a row that sees no key.
        empty_row_lse: What the LSE of a row that sees no key sums: nothing, or the sink; set from `Contract.empty_row_lse`.
        scale_ds: The scale multiplies the gradients after their dots, an operand of theirs in fp32 (the rounded dS, or K and Q), or dS
            before it is rounded to the input dtype.
        row_sum: The row sum adds the fp32 weights, or the rounded ones.
        bwd_lse_base: `"e"` when the backward converts a natural LSE to base 2.
        lse_base: Base of the LSE that the kernel returns.
        s_dtype: dtype in which S is kept: where it is the input's, S and its gradient are rounded after the dot, after the scale and after each bias.
        pv_dtype: dtype of the product P V of a tile, before it is added to the accumulator.
        dp_dtype: dtype of the product dO V^T.
        o_accum: dtype of the accumulator of O, which is rounded twice a block where it is narrow.
        k_smoothed: A mean of K over keys is subtracted from K before the dot and the difference is rounded to the input dtype; the LSE is corrected.
        normalise: Division by the row sum at the end, after every block, or of the weights before their cast (`"before_cast"`); or the LSE in place of the sum: the accumulator times
            `exp(m - lse)` at the end (`"lse"`), or weights `exp(S - lse)` after a pass that found the LSE (`"lse_weights"`).
        dp_init: Initial value of the dP accumulator.
        delta_from: What delta is summed from: the stored `"o"`, O before it is rounded (`"o_fp32"`), or `"p"`, as `sum P dP` with the P of
            the backward. `"unknown"` is judged by every reading, and right under one is right.
        p_from: Where the P of the backward comes from: recomputed from the stored LSE (`"lse"`) or kept from the forward in fp32
            (`"forward"`), which takes no splits and no operand that is prescaled in the backward alone. `"unknown"` likewise.
        partials: The kernel computes the parts that it merges, or is given them: O and LSE of each of `n_splits` parts, exact but for one rounding.
        partial_dtype: dtype of partial outputs of split-KV or ring attention.
        grad_accum: dtype in which gradients are accumulated across blocks, by atomics or in the output itself.
        grad_accum_of: Which of them: `"dq"` across key blocks, `"dkv"` across query blocks, or `"all"`.
        grad_adds: Additions into an element of that accumulator; None for one a block, of 16 rows where the block is not known.
        grad_parts: Parts of the queries or of the keys whose gradients are computed apart in fp32 and then added, as by the ranks of a ring.
        gqa_partial: dtype of each query head's dK and dV before the sum over the group.
        partial_lse_base: Base of the LSE that a split stores.
        dropout_scale: The dropout factor multiplies in fp32 (the weights, or O and the gradients), or the weights in the input dtype.
        dbias_partial: dtype of each (batch, head)'s dS before the sum that makes the gradient of a bias or of a relative bias.
        softcap: The tanh of a softcap: from the kernel's exponential, `(1 - e) / (1 + e)`; one within 4u; `tanh.approx` (2^-11).
        softcap_slope: Its derivative: `1 - tanh^2`, or `c (2 - c)` with `c = 1 - tanh |x|` from the exponential, which keeps its relative precision.
        kappa_bias: Roundings of a bias, of ALiBi and of a sink before it is added, in units of `u |bias|`.
        max_source: The maximum is subtracted from the same rounded products that it was taken from, or `fl(m c)` is rounded apart.
        kappa: Roundings of a logit in units of `u |S|`: fl(scale), fl(log2 e), their product, the product with the dot.
        block_n: Key block; None for the worst of 16, 32, ..., 256.
        n_blocks: Key blocks visited by a row; None for `ceil(Sk / block_n)`.
        n_splits: Splits of the keys merged through their LSEs.
        n_merges: Merges that a split goes through: one of all of them, or up to `n_splits - 1` of two, one after the other, as in a ring.
        key_order: `"ascending"`: tiles of `block_n` keys that begin at its multiples, counted from the first key of the problem, are visited in
            ascending order; a tile without a visible key changes nothing, and a sink enters after the last. The weights of a tile are summed and
            then added to one row sum, and its product with V to one accumulator. It makes 16-bit weights predictable and every bound of the
            forward sharper (docs/bounds.md, sections 4 to 14), and needs `block_n`.
        dequantised: How a code of a quantised K or V becomes a number: `"operand"`, its product with the scale in fp32 is rounded to the
            input dtype; `"narrow"`, the scale and the product are; `"folded"`, the code itself is the operand, the scale of K multiplies the
            logit and that of V the weight or the result in fp32. `"unknown"` is judged by the widest of them (docs/bounds.md, section 23).
        v_scale_last: Of folded scales: that of V multiplies the result, so no weight carries it.
        p_dtype: Format of 8 bits that weights are cast to before their product with V, `"e4m3"` or `"e5m2"`; None for the input's.
        p_factor: Number that weights are multiplied by before that cast, and the result divided by.
        products: The product of weights and V (`"fp8_pv"`), that of Q and K (`"fp8_qk"`) or both (`"fp8"`) take fp8 operands on both
            sides; else those of the input dtype.
        fp8_chain: Keys that fp8 products with V add in the matrix unit before the sum enters an accumulator in fp32; None for all.
        dot: Precision of fp32 dots.
        architecture: `"sm_80"`, `"sm_90"`, ..., `"ieee"` (interpreter, CPU); anything else gets the maximum over all.
        out_dtype: dtype of O; None for the input's.
        grad_dtype: dtype of dQ, dK, dV; None for the input's.
    """

    exp: str = "ex2"
    exp_eps: float | None = None
    gap_c: float = 3.0
    rescale_threshold: float = 0.0
    prescale_fwd: str = "none"
    prescale_bwd: str = "none"
    grad_uses_prescaled: bool = False
    ds_from: str = "p_fp32"
    scale_ds: str = "after"
    row_sum: str = "unrounded"
    bwd_lse_base: str = "2"
    lse_base: str = "e"
    normalise: str = "end"
    s_dtype: str = "fp32"
    pv_dtype: str = "fp32"
    dp_dtype: str = "fp32"
    o_accum: str = "fp32"
    k_smoothed: bool = False
    dp_init: str = "zero"
    delta_from: str = "unknown"
    p_from: str = "unknown"
    partials: str = "computed"
    partial_dtype: str = "fp32"
    grad_accum: str = "fp32"
    grad_accum_of: str = "dq"
    grad_adds: int | None = None
    grad_parts: int = 1
    gqa_partial: str = "fp32"
    partial_lse_base: str = "2"
    dropout_scale: str = "fp32"
    dbias_partial: str = "fp32"
    softcap: str = "exp"
    softcap_slope: str = "square"
    kappa_bias: float = 4.0
    max_source: str = "exponent"
    kappa: float = 4.0
    block_n: int | None = None
    n_blocks: int | None = None
    n_splits: int = 1
    n_merges: int = 1
    key_order: str = "unknown"
    masked_ds: bool = False
    stored_delta: str = "plain"
    empty_row_lse: str = "none"
    dequantised: str = "unknown"
    v_scale_last: bool = False
    p_dtype: str | None = None
    p_factor: float = 1.0
    products: str = "input"
    fp8_chain: int | None = None
    dot: str = "ieee"
    architecture: str = AGNOSTIC
    out_dtype: str | None = None
    grad_dtype: str | None = None

    def __post_init__(self) -> None:
        for name, accepted in _CHOICES.items():
            if getattr(self, name) not in accepted:
                self._refuse(name, ", ".join(map(repr, accepted)))
        for name, dtypes in _OPTIONAL.items():
            if getattr(self, name) not in (None, *dtypes):
                self._refuse(name, ", ".join(map(repr, (None, *dtypes))))
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                self._refuse(name, "True, False")
        for name, low, high in _NUMBERS:
            value = getattr(self, name)
            optional = name == "exp_eps"
            real = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
            if not (real or (optional and value is None)):
                self._refuse(name, f"a number in [{low:g}, {high:g}]{' or None' if optional else ''}")
        for name in _COUNTS:
            value = getattr(self, name)
            optional = name in ("block_n", "n_blocks", "grad_adds", "fp8_chain")
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not (whole or (optional and value is None)):
                self._refuse(name, f"an integer >= 1{' or None' if optional else ''}")
        if not (isinstance(self.architecture, str) and self.architecture):
            self._refuse("architecture", "a name such as 'sm_90'")
        if self.grad_uses_prescaled and self.prescale_bwd == "none":
            raise ValueError("grad_uses_prescaled=True needs prescale_bwd='q' or 'k', got prescale_bwd='none'")
        if self.p_from == "forward" and self.recomputes:
            raise ValueError(
                "p_from='forward' is not accepted with n_splits > 1, prescale_bwd or bwd_lse_base='e': these recompute P from an LSE"
            )
        if self.p_dtype is not None and self.p_factor * 2.0**self.rescale_threshold > WEIGHT_FORMATS[self.p_dtype].max:
            self._refuse("p_factor", f"at most {WEIGHT_FORMATS[self.p_dtype].max:g} / 2^rescale_threshold")
        if self.key_order == "ascending" and self.block_n is None:
            raise ValueError("key_order='ascending' needs block_n, the keys of a tile, got block_n=None")

    def _refuse(self, name: str, accepted: str) -> NoReturn:
        raise ValueError(f"{name}={getattr(self, name)!r} is not a valid form value; accepted: {accepted}")

    @property
    def recomputes(self) -> bool:
        """Whether another field says that the backward recomputes P."""
        return self.n_splits > 1 or self.prescale_bwd != "none" or self.bwd_lse_base == "e"

    @property
    def eps(self) -> float:
        """Relative error of the exponential, `|fl(exp t) / exp t - 1|`."""
        if self.exp_eps is not None:
            return self.exp_eps * 2.0**-24
        return POLY_EPS if self.exp == "poly" else EX2_EPS

    def describe(self) -> Mapping[str, Mapping[str, object]]:
        """Return `{"declared": values that differ from the defaults, "assumed": defaults that were taken}`, for reports."""
        described: dict[str, dict[str, object]] = {"declared": {}, "assumed": {}}
        for field in fields(self):
            value = getattr(self, field.name)
            described["assumed" if value == field.default else "declared"][field.name] = value
        return described
