"""An attention problem prepared for the bounds: grouped by kv head, cut into chunks of query rows, masked, free of NaN."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from flashverify.formats import DTYPES, FORMATS, format_of
from flashverify.numerics.chunk import Chunk
from flashverify.numerics.coefficients import Coefficients, coefficients
from flashverify.numerics.features import Features, check_modifiers
from flashverify.numerics.flushing import flushable_part, flushable_parts
from flashverify.numerics.form import Form
from flashverify.numerics.prepare import chunk_of, visible_operands
from flashverify.numerics.scaled import with_scales
from flashverify.numerics.shape import Shape
from flashverify.numerics.systematic import without_rounding_to_nearest, without_roundings

__all__ = ["BoundInputs", "Pairs"]

# A value for every pair: a tensor that broadcasts to `[B, Hq, Sq, Sk]`, or a function of a slice of rows and a slice of keys that returns one.
Pairs = Tensor | Callable[[slice, slice], Tensor]

_CHUNK_ELEMENTS = 1 << 21


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class BoundInputs:
    """One attention problem and the form of the kernel that computed it. Build it with `BoundInputs.of`.

    Attributes:
        q: `[B, Hkv, group, Sq, D]` float64.
        k: `[B Hkv, Sk, D]` float64; v `[B Hkv, Sk, Dv]`.
        scale: Softmax scale, any sign.
        visible: None, a bool tensor broadcastable to `[B, Hq, Sq, Sk]`, or a function of (row slice, key slice).
        dtype: `"fp16"`, `"bf16"`, `"fp32"`: the dtype that the kernel was given.
        form: The kernel's numerical form.
        shape: Sizes.
        features: What it has beside that, or None.
        biases: Additive terms of the logits, natural units, each like `visible` but real.
        sink: `[Hq]` float64 sink logits, natural units, or None.
        keep: Pairs that dropout keeps, like `visible`.
        k_scale: `[B Hkv, Sk, 1]` float64, the scale of each key of a quantised K, or None; v_scale likewise; q_scale `[B, Hq, Sq, 1]`.
        directed: The bounds hold what may share a direction, and no rounding to nearest; what they say of E64 counts for nothing (section 22).
        finite: Q, K and V are known to hold finite numbers alone.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    visible: Pairs | None
    dtype: str
    form: Form
    shape: Shape
    features: Features | None = None
    biases: tuple[Pairs, ...] = ()
    sink: Tensor | None = None
    keep: Pairs | None = None
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None
    q_scale: Tensor | None = None
    chunk_elements: int = _CHUNK_ELEMENTS
    directed: bool = False
    finite: bool = False
    _only: Chunk | None = None

    @classmethod
    def of(
        cls,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        dtype: str | torch.dtype,
        form: Form | None = None,
        visible: Pairs | None = None,
        softcap: float | None = None,
        biases: Sequence[Pairs] = (),
        sink: Tensor | None = None,
        keep: Pairs | None = None,
        dropout: float = 0.0,
        k_scale: Tensor | None = None,
        v_scale: Tensor | None = None,
        q_scale: Tensor | None = None,
        chunk_elements: int = _CHUNK_ELEMENTS,
        finite: bool = False,
    ) -> "BoundInputs":
        """Prepare a problem.

        Args:
            q: Queries `[B, Hq, Sq, D]`, any floating dtype, values as the kernel saw them.
            k: Keys `[B, Hkv, Sk, D]`; query head h reads kv head `h // (Hq // Hkv)`.
            v: Values `[B, Hkv, Sk, Dv]`.
            scale: Softmax scale, any sign.
            dtype: The dtype that the kernel was given: fp16, bf16 or fp32.
            form: Its numerical form; None for the defaults.
            visible: Which pairs are unmasked: None (all), a bool tensor broadcastable to `[B, Hq, Sq, Sk]`, or a function that takes a slice of
                rows and a slice of keys and returns such a tensor for them.
            softcap: The logits are `softcap tanh(scale q k / softcap)` before the biases; None or 0 for none.
            biases: Additive terms of the logits, natural units, ALiBi among them, each apart: like `visible`, floating.
            sink: `[Hq]` logits of one more column with V = 0 in every row that sees a key, natural units.
            keep: The pairs that dropout keeps, like `visible`; every weight then counts times `1 / (1 - dropout)`, and the LSE does not change.
            dropout: Probability p in [0, 1).
            k_scale: Of a quantised K, whose values `k` holds: the scale of each key, `[B, Hkv, Sk, 1]`.
            v_scale: Likewise.
            q_scale: Of a q in codes the scale of each row, `[B, Hq, Sq, 1]`.
            chunk_elements: Largest number of pairs held at once.
            finite: Q, K and V are known to hold finite numbers alone, which saves a GPU the question.

        Returns:
            The problem.

        Raises:
            ValueError: If shapes disagree, the dtype is not one of the three, or softcap or dropout are out of range.
        """
        B, Hq, Sq, D = q.shape
        _, Hkv, Sk, Dv = v.shape
        if k.shape != (B, Hkv, Sk, D) or v.shape[0] != B or (Hq % Hkv if Hkv else Hq):
            raise ValueError(f"shapes do not fit: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")
        if (name := format_of(dtype).name) not in DTYPES:
            raise ValueError(f"dtype={name!r} is not a kernel's dtype; accepted: {', '.join(DTYPES)}")
        check_modifiers(Hq, softcap=softcap, dropout=dropout, keep=keep is not None, sink=sink)
        features = Features(
            softcap=softcap or None,
            biases=len(biases),
            sink=sink is not None,
            keep=keep is not None,
            dropout=float(dropout),
        )
        group = Hq // Hkv if Hkv else 1
        return cls(
            q=q.double().reshape(B, Hkv, group, Sq, D),
            k=k.double().reshape(B * Hkv, Sk, D),
            v=v.double().reshape(B * Hkv, Sk, Dv),
            scale=float(scale),
            visible=visible,
            dtype=name,
            form=form if form is not None else Form(),
            shape=Shape(group=group, Sq=Sq, Sk=Sk, D=D, Dv=Dv),
            features=None if features == Features() else features,
            biases=tuple(biases),
            sink=None if sink is None else sink.double().to(q.device),
            keep=keep,
            k_scale=None if k_scale is None else k_scale.double().reshape(B * Hkv, Sk, 1),
            v_scale=None if v_scale is None else v_scale.double().reshape(B * Hkv, Sk, 1),
            q_scale=None if q_scale is None else q_scale.double(),
            chunk_elements=chunk_elements,
            finite=finite,
        )

    def coefficients(self) -> Coefficients:
        """Those of the form."""
        c = coefficients(self.form, self.dtype, self.shape, self.scale, self.features)
        return without_rounding_to_nearest(c, self.form, self.dtype, self.shape) if self.directed else c

    def directed_part(self) -> "BoundInputs":
        """The problem whose bounds hold the errors that may share a direction."""
        return dataclasses.replace(self, form=without_roundings(self.form), directed=True)

    def magnitude(self, x: Tensor) -> Tensor:
        """|x| as a matrix unit aligns it: a subnormal operand enters with the smallest normal exponent and leading zeros.

        The grid on which products are truncated follows from exponents, not from values, so a product with a subnormal factor
        loses as much as one with the smallest normal number in its place. Seen on an H200: q = 9 * 2^-24 times k = 1000.
        """
        size = x.abs()
        if not FORMATS[self.dtype].narrow or self.form.architecture == "ieee":
            return size
        return size.clamp(min=FORMATS[self.dtype].min_normal).mul_(size.sign())

    def flushable(self, x: Tensor) -> Tensor | None:
        """How much of each element of an operand hardware may flush to zero, or None."""
        return flushable_part(x, self.dtype, self.form)

    def cut(self, x: Tensor, rows: slice) -> Tensor:
        """Rows of `x` `[B, Hq, Sq, C]` as `[G, M, C]` float64."""
        B, Hkv, group = self.q.shape[:3]
        part, size = x if x.dtype == torch.float64 else x.double(), rows.stop - rows.start
        part = part if size == x.shape[2] else part.reshape(B, Hkv, group, *x.shape[2:])[:, :, :, rows]
        return part.reshape(B * Hkv, group * size, x.shape[-1])

    def join(self, parts: list[Tensor]) -> Tensor:
        """The inverse of `cut` over all chunks: `[B, Hq, Sq, C]`."""
        B, Hkv, group, Sq = self.q.shape[:4]
        C = parts[0].shape[-1]
        return (
            parts[0].reshape(B, Hkv * group, Sq, C)
            if len(parts) == 1
            else torch.cat([p.reshape(B, Hkv * group, p.shape[1] // group, C) for p in parts], 2)
        )

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks in order; at least one, empty when there are no rows. A single chunk is kept for the next caller."""
        if self._only is not None:
            yield self._only
            return
        Sq, step = self.shape.Sq, self._rows_of_chunk
        if step >= Sq:
            self._only = self._chunk(slice(0, Sq))
            yield self._only
            return
        for start in range(0, Sq, step):
            yield self._chunk(slice(start, min(start + step, Sq)))

    @property
    def _rows_of_chunk(self) -> int:
        B, Hkv, group = self.q.shape[:3]
        return max(1, self.chunk_elements // max(1, B * Hkv * group * self.shape.Sk))

    @property
    def undivided(self) -> bool:
        """Whether one chunk holds all rows."""
        return self._rows_of_chunk >= self.shape.Sq

    def _pairs(self, x: Pairs, rows: slice) -> Tensor:
        """A value of every pair of some rows, `[G, M, N]` in its own dtype."""
        B, Hkv, group, Sq = self.q.shape[:4]
        if callable(x):
            part = x(rows, slice(0, self.shape.Sk))
        else:
            part = x.reshape((1,) * (4 - x.ndim) + x.shape)
            part = part[:, :, rows] if part.shape[2] == Sq else part
        M = rows.stop - rows.start
        return (
            part.to(self.q.device).expand(B, Hkv * group, M, self.shape.Sk).reshape(B * Hkv, group * M, self.shape.Sk)
        )

    def _rows(self, rows: slice) -> Tensor:
        """Q as `[G, M, D]`."""
        G, D = self.k.shape[0], self.shape.D
        if not self.q.numel():
            return self.q.new_zeros(G, self.shape.group * (rows.stop - rows.start), D)
        return self.q[:, :, :, rows].reshape(G, -1, D)

    def _sink_of(self, rows: slice) -> Tensor | None:
        """The sink's logit of every row, `[G, M, 1]`."""
        if self.sink is None:
            return None
        B, Hkv, group = self.q.shape[:3]
        sink = self.sink.view(1, Hkv, group, 1).expand(B, -1, -1, rows.stop - rows.start)
        return sink.reshape(B * Hkv, group * (rows.stop - rows.start), 1)

    def _chunk(self, rows: slice) -> Chunk:
        """Visibility, finite operands, logits and what stands beside them (docs/bounds.md, sections 0, 3 and 19)."""
        pairs = None if self.visible is None else self._pairs(self.visible, rows)
        operands = visible_operands(self._rows(rows), self.k, self.v, pairs, finite=self.finite)
        kept = None if self.keep is None else self._pairs(self.keep, rows).double()
        factor, softcap = (1.0, None) if self.features is None else (self.features.factor, self.features.softcap)
        chunk = chunk_of(
            rows,
            operands,
            magnitude=self.magnitude,
            flushable=lambda operands: flushable_parts(operands, self.dtype, self.form),
            scale=self.scale,
            softcap=softcap,
            biases=[self._pairs(x, rows) for x in self.biases],
            sink=self._sink_of(rows),
            kept=kept,
            factor=factor,
        )
        return with_scales(self, chunk)
