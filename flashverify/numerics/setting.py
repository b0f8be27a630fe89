"""What the groups of coefficients of a subject have in common: its form and formats, and the blocks that a row goes through."""

import math
from dataclasses import dataclass

from flashverify.formats import FORMATS, Format, format_of
from flashverify.numerics.features import FeatureCoefficients, Features, feature_coefficients
from flashverify.numerics.form import Form
from flashverify.numerics.primitives import dot_coefficient
from flashverify.numerics.quantised import FP8_LOGITS, FP8_WEIGHTS, WEIGHT_FORMATS, fp8_dot
from flashverify.numerics.shape import Shape

__all__ = ["Setting", "U", "W", "key_blocks", "setting_of"]

# Unit roundoff of fp32 and the largest magnitude that it may flush.
U, W = FORMATS["fp32"].u, FORMATS["fp32"].min_normal
_BLOCKS = (16, 32, 64, 128, 256)


def key_blocks(form: Form, Sk: int) -> tuple[int, int]:
    """Return `(BN + 2 Nb, Nb)`: the roundings of a row sum and the key blocks of a row, each the largest over the block sizes allowed.

    Parts that are given are the blocks, one weight each.
    A block of BN keys sums at most min(BN, Sk) non-zero weights; masked weights are exact zeros.
    """
    if Sk == 0:
        return 0, 0
    if form.partials == "given":
        return 2 * form.n_splits, form.n_splits
    sizes = (form.block_n,) if form.block_n is not None else _BLOCKS
    pairs = []
    for size in sizes:
        blocks = form.n_blocks if form.n_blocks is not None else math.ceil(Sk / size)
        blocks += form.n_splits - 1
        pairs.append((min(size, Sk) + 2 * blocks, blocks))
    return max(total for total, _ in pairs), max(blocks for _, blocks in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the groups have in common.

    Attributes:
        x: Format of the inputs.
        scale: |scale|.
        blocks: Key blocks of a row, `sums` the roundings of its sum.
        rescales: Rescales of a row: a block, the merge of splits or a sink may raise the maximum.
        splits: The keys are split; `sink`: rows have one.
        queries: Rows that a gradient of a key sums over.
        beside: Coefficients of softcap, biases, sink and dropout, or None.
        factor: `1 / (1 - p)` of dropout, `drop` its relative error in dV.
    """

    form: Form
    x: Format
    shape: Shape
    scale: float
    blocks: int
    sums: int
    rescales: int
    splits: bool
    sink: bool
    queries: int
    beside: FeatureCoefficients | None
    factor: float
    drop: float

    def dot(self, K: int, parts: int = 1) -> float:
        """D(K) of the form's matrix unit (section 2)."""
        form = self.form
        return dot_coefficient(K, dtype=self.x.name, dot=form.dot, architecture=form.architecture, parts=parts)

    def weighted(self, K: int) -> float:
        """D(K) of a product of weights and V."""
        if self.form.products in FP8_WEIGHTS:
            return fp8_dot(K, interpreted=self.form.architecture == "ieee", chain=self.form.fp8_chain)
        return self.dot(K)

    @property
    def dot_channels(self) -> float:
        """D(d) of the product of Q and K."""
        if self.form.products in FP8_LOGITS:
            return fp8_dot(self.shape.D, interpreted=self.form.architecture == "ieee", chain=None)
        return self.dot(self.shape.D)

    @property
    def u_s(self) -> float:
        """Unit roundoff of S where it is kept in the input dtype, else 0."""
        return self.x.u if self.form.s_dtype == "input" and self.x.narrow else 0.0

    @property
    def eta_p(self) -> float:
        """Subnormal error of one cast of P or dS; a merge casts no weights."""
        if self.form.partials != "computed":
            return 0.0
        if self.form.p_dtype is not None:
            return WEIGHT_FORMATS[self.form.p_dtype].eta / self.form.p_factor
        return self.x.eta if self.x.narrow else 0.0

    @property
    def u_p(self) -> float:
        """Unit roundoff of one cast of P, 0 for fp32."""
        if self.form.partials != "computed":
            return 0.0
        if self.form.p_dtype is not None:
            # The product with the factor is a rounding of fp32.
            return WEIGHT_FORMATS[self.form.p_dtype].u + 2 * U * (self.form.p_factor != 1.0)
        return self.x.u if self.x.narrow else 0.0

    @property
    def p_max(self) -> float:
        """Largest weight that its cast keeps."""
        if self.form.p_dtype is not None:
            return WEIGHT_FORMATS[self.form.p_dtype].max
        return min(self.x.max, 2.0**127) if self.x.narrow else 2.0**127

    @property
    def dot_keys(self) -> float:
        """A dot over the keys; one of its own for every tile, added to the accumulator, costs one rounding a tile."""
        if self.form.partials == "given":  # one product a part, in fp32
            once = dot_coefficient(self.form.n_splits, dtype="fp32", dot="ieee", architecture="ieee")
            return once + U * self.blocks + self.merged
        if self.form.products in FP8_WEIGHTS:
            return self.weighted(self.shape.Sk) + U * self.blocks + self.merged
        return self.dot(self.shape.Sk, self.form.n_splits) + U * self.blocks + self.merged + self.added

    @property
    def dot_queries(self) -> float:
        """A dot over the rows of a group, likewise."""
        shape = self.shape
        parts = shape.group * self.form.grad_parts
        return self.dot(self.queries, parts) + U * shape.group * math.ceil(shape.Sq / 16) + self.added

    @property
    def merged(self) -> float:
        """What each merge after the first rounds of a running O: a division of the weight, a product, a sum (section 5)."""
        return 8 * U * (self.form.n_merges - 1)

    @property
    def added(self) -> float:
        """Gradients of parts: each is added, and has a last tile for every head (section 12)."""
        return U * (1 + self.shape.group) * self.form.grad_parts if self.form.grad_parts > 1 else 0.0


def setting_of(form: Form, dtype: str, shape: Shape, scale: float, features: Features | None) -> Setting:
    """The setting of a subject; the arguments are those of `coefficients`."""
    sums, blocks = key_blocks(form, shape.Sk)
    splits, sink = form.n_splits > 1, features is not None and features.sink
    beside = None if features is None else feature_coefficients(form, dtype, scale, features)
    factor, drop = (
        (1.0, 0.0) if features is None or beside is None else (features.factor, beside.drop + beside.drop_cast)
    )
    # A sink is one more term of the row sum, and its logit may be the last to raise the maximum.
    return Setting(
        form=form, x=format_of(dtype), shape=shape, scale=abs(scale), blocks=blocks, sums=sums + 2 * sink,
        rescales=blocks + splits * form.n_merges + sink, splits=splits, sink=sink, queries=shape.group * shape.Sq, beside=beside,
        factor=factor, drop=drop,
    )  # fmt: skip
