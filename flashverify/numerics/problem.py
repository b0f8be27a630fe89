"""An attention problem prepared for the bounds: grouped by kv head, cut into chunks of query rows, masked, free of NaN."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flashverify.numerics.coefficients import Shape
from flashverify.numerics.form import Form
from flashverify.numerics.formats import format_of

__all__ = ["Chunk", "Problem", "Visible"]

Visible = Callable[[slice, slice], Tensor]

# Stands for the logit of an invisible pair. Finite, so that no inf - inf arises; below every real logit (|q| |k| d scale < 1e120), so that every
# weight taken from it is an exact zero, whatever error is added to it.
MASKED = -1e300
_CHUNK_ELEMENTS = 1 << 21


def finite_rows(x: Tensor) -> Tensor:
    """`[..., 1]` bool: is every element along the last axis finite?"""
    return torch.isfinite(x.sum(-1, keepdim=True))


@dataclass(slots=True, kw_only=True, eq=False)
class Chunk:
    """Rows of all query heads of each kv head, as `[G, M, N]` matrices: G = B Hkv, M = group times rows, N = Sk; float64.

    Attributes:
        rows: The query rows.
        q, k, v: Operands; zero where no visible pair reads them.
        aq, ak, av: Their magnitudes; `vv` is V and V^2 side by side.
        vis: Visible pairs as 0/1, or None when all are.
        n: `[G, M, 1]` visible keys a row.
        empty: `[G, M, 1]` bool, rows that see nothing.
        A: `sum |q| |k|`, 0 where invisible.
        S: Logits, `MASKED` where invisible; `abs_s` their magnitudes.
        m: `[G, M, 1]` largest logit, 0 in empty rows.
        bad: `[G, M, 1]` bool, rows whose logits see a non-finite input.
        bad_v: `[G, M, Dv]` bool or None, outputs that see a non-finite V.
        top, low: `[G, 1, Dv]` largest and smallest V of the keys that any row sees; -inf and inf where there is none.
        hidden_v: `[G, N, 1]` largest finite |V| of the keys that no row sees, 0 for the others, or None.
        cache: Terms of the last gradient, for a second look at the same one.
    """

    rows: slice
    q: Tensor
    k: Tensor
    v: Tensor
    aq: Tensor
    ak: Tensor
    av: Tensor
    vv: Tensor
    vis: Tensor | None
    n: Tensor
    empty: Tensor
    A: Tensor
    S: Tensor
    abs_s: Tensor
    m: Tensor
    bad: Tensor
    bad_v: Tensor | None
    top: Tensor
    low: Tensor
    hidden_v: Tensor | None
    cache: dict[str, object] = field(default_factory=dict)

    def mask(self, x: Tensor) -> Tensor:
        """Zero the invisible pairs of `x` `[G, M, N]`."""
        return x if self.vis is None else x * self.vis

    def add_visible(self, x: Tensor, value: float) -> Tensor:
        """Add `value` to the visible pairs of `x` `[G, M, N]`, in place."""
        return x.add_(value) if self.vis is None else x.add_(self.vis, alpha=value)

    def over_keys(self, x: Tensor) -> Tensor:
        """`[G, M, C]`: sum of `x` `[G, N, C]` over the keys that each row sees."""
        return x.sum(-2, keepdim=True).expand(-1, self.n.shape[1], -1) if self.vis is None else self.vis @ x

    def over_rows(self, x: Tensor) -> Tensor:
        """`[G, N, C]`: sum of `x` `[G, M, C]` over the rows that see each key."""
        return x.sum(-2, keepdim=True).expand(-1, self.k.shape[1], -1) if self.vis is None else self.vis.mT @ x


@dataclass(slots=True, kw_only=True, eq=False)
class Problem:
    """One attention problem and the form of the kernel that computed it. Build it with `Problem.of`.

    Attributes:
        q: `[B, Hkv, group, Sq, D]` float64.
        k: `[B Hkv, Sk, D]` float64.
        v: `[B Hkv, Sk, Dv]` float64.
        scale: Softmax scale, any sign.
        visible: None, a bool tensor broadcastable to `[B, Hq, Sq, Sk]`, or a function of (row slice, key slice).
        dtype: `"fp16"`, `"bf16"`, `"fp32"`: the dtype that the kernel was given.
        form: The kernel's numerical form.
        shape: Sizes.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    visible: Tensor | Visible | None
    dtype: str
    form: Form
    shape: Shape
    chunk_elements: int = _CHUNK_ELEMENTS
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
        visible: Tensor | Visible | None = None,
        chunk_elements: int = _CHUNK_ELEMENTS,
    ) -> "Problem":
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
            chunk_elements: Largest number of pairs held at once.

        Returns:
            The problem.

        Raises:
            ValueError: If shapes disagree or the dtype is not one of the three.
        """
        B, Hq, Sq, D = q.shape
        _, Hkv, Sk, Dv = v.shape
        if k.shape != (B, Hkv, Sk, D) or v.shape[0] != B or (Hq % Hkv if Hkv else Hq):
            raise ValueError(f"shapes do not fit: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")
        name = format_of(dtype).name
        if name == "fp64":
            raise ValueError("dtype='fp64' is not a kernel's dtype; accepted: fp16, bf16, fp32")
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
            chunk_elements=chunk_elements,
        )

    def magnitude(self, x: Tensor) -> Tensor:
        """|x| as a matrix unit aligns it: a subnormal operand enters with the smallest normal exponent and leading zeros.

        The grid on which products are truncated follows from exponents, not from values, so a product with a subnormal factor
        loses as much as one with the smallest normal number in its place. Seen on an H200: q = 9 * 2^-24 times k = 1000.
        """
        size = x.abs()
        if self.dtype == "fp32" or self.form.architecture == "ieee":
            return size
        return torch.where(size > 0, size.clamp(min=format_of(self.dtype).min_normal), size)

    def cut(self, x: Tensor, rows: slice) -> Tensor:
        """Rows of `x` `[B, Hq, Sq, C]` as `[G, M, C]` float64."""
        B, Hkv, group = self.q.shape[:3]
        part = x.double().reshape(B, Hkv, group, *x.shape[2:])[:, :, :, rows]
        return part.reshape(B * Hkv, group * part.shape[3], x.shape[3])

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
        B, Hkv, group, Sq = self.q.shape[:4]
        step = max(1, self.chunk_elements // max(1, B * Hkv * group * self.shape.Sk))
        if step >= Sq:
            self._only = self._chunk(slice(0, Sq))
            yield self._only
            return
        for start in range(0, Sq, step):
            yield self._chunk(slice(start, min(start + step, Sq)))

    def _visible(self, rows: slice) -> Tensor | None:
        if self.visible is None:
            return None
        B, Hkv, group, Sq = self.q.shape[:4]
        if callable(self.visible):
            vis = self.visible(rows, slice(0, self.shape.Sk))
        else:
            vis = self.visible
            vis = vis.reshape((1,) * (4 - vis.ndim) + vis.shape)
            vis = vis[:, :, rows] if vis.shape[2] == Sq else vis
        M = rows.stop - rows.start
        return vis.to(self.q.device).expand(B, Hkv * group, M, self.shape.Sk).reshape(B * Hkv, group * M, self.shape.Sk)

    def _chunk(self, rows: slice) -> Chunk:
        G = self.k.shape[0]
        q = (
            self.q[:, :, :, rows].reshape(G, -1, self.shape.D)
            if self.q.numel()
            else self.q.new_zeros(G, self.shape.group * (rows.stop - rows.start), self.shape.D)
        )
        k, v = self.k, self.v
        M, N = q.shape[1], self.shape.Sk
        pairs = self._visible(rows)
        vis = hidden_v = seen = None
        if pairs is None:
            n = torch.full((G, M, 1), float(N), dtype=torch.float64, device=q.device)
        else:
            vis = pairs.double()
            n = vis.sum(-1, keepdim=True)
            seen = pairs.any(-2).unsqueeze(-1)
            if v.shape[-1]:
                hidden_v = torch.where(seen | ~finite_rows(v), 0.0, v.abs().amax(-1, keepdim=True))
            k, v, q = torch.where(seen, k, 0.0), torch.where(seen, v, 0.0), torch.where(n > 0, q, 0.0)
        empty = n == 0
        bad, bad_v = torch.zeros_like(empty), None
        if not bool(torch.isfinite(q.sum() + k.sum() + v.sum())):
            bad_k = (~finite_rows(k)).double()
            nan_v = (~torch.isfinite(v)).double()
            reach_k = bad_k.sum(-2, keepdim=True) if vis is None else vis @ bad_k
            bad = (~finite_rows(q) | (reach_k > 0)) & ~empty
            bad_v = (nan_v.sum(-2, keepdim=True).expand(G, M, -1) if vis is None else vis @ nan_v) > 0
            q, k, v = (torch.where(torch.isfinite(x), x, 0.0) for x in (q, k, v))
        aq, ak, av = self.magnitude(q), self.magnitude(k), self.magnitude(v)
        if N == 0:
            top = low = v.new_zeros(G, 1, v.shape[-1])
        elif seen is None:
            top, low = v.amax(-2, keepdim=True), v.amin(-2, keepdim=True)
        else:
            top = torch.where(seen, v, -torch.inf).amax(-2, keepdim=True)
            low = torch.where(seen, v, torch.inf).amin(-2, keepdim=True)
        A = aq @ ak.mT
        S = (q @ k.mT).mul_(self.scale)
        if vis is not None and pairs is not None:
            A.mul_(vis)
            S.masked_fill_(~pairs, MASKED)
        m = S.amax(-1, keepdim=True).masked_fill_(empty, 0.0) if N else torch.zeros_like(n)
        return Chunk(
            rows=rows, q=q, k=k, v=v, aq=aq, ak=ak, av=av, vv=torch.cat([v, v * v], -1), vis=vis, n=n, empty=empty,
            A=A, S=S, abs_s=S.abs(), m=m, bad=bad, bad_v=bad_v, top=top, low=low, hidden_v=hidden_v,
        )  # fmt: skip
