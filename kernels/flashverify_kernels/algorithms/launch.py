"""Host functions of the algorithms: allocate and launch. Tensors are `[B, H, S, D]` with any strides; outputs are contiguous."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from flashverify_kernels.algorithms.paper import paper_backward_kernel, paper_forward_kernel
from flashverify_kernels.algorithms.standard import (
    product_kernel,
    score_gradient_kernel,
    scores_kernel,
    softmax_kernel,
    weight_gradient_kernel,
)
from flashverify_kernels.algorithms.two_pass import statistics_kernel, weighted_sum_kernel
from flashverify_kernels.config import padded_dim
from flashverify_kernels.device.mask import CAUSAL, NONE

_LOG2_E = math.log2(math.e)
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is computed, and in which tiles.

    Attributes:
        scale: of the logits.
        causal: alignment of a causal mask, or None.
        key_lengths: `[B]` int32, or None.
        block_m: queries per tile.
        block_n: keys per tile.
    """

    scale: float
    causal: Literal["top-left", "bottom-right"] | None = None
    key_lengths: torch.Tensor | None = None
    block_m: int = 32
    block_n: int = 32


class Forward(NamedTuple):
    """What a forward leaves behind.

    Attributes:
        o: `[B, H, Sq, Dv]` in the dtype of q.
        lse: `[B, H, Sq]` fp32, natural; -inf for a row without keys.
        kept: what the backward reads: (m, l) in base 2, or P.
    """

    o: torch.Tensor
    lse: torch.Tensor
    kept: tuple[torch.Tensor, ...] = ()


class _Shapes:
    """Sizes of a problem and the arguments that all kernels share."""

    def __init__(self, q: torch.Tensor, v: torch.Tensor, setting: Setting) -> None:
        self.batch, self.heads, self.sq, self.d = q.shape
        _, self.kv_heads, self.sk, self.dv = v.shape
        self.group = self.heads // max(self.kv_heads, 1)
        self.blocks = {"BLOCK_M": setting.block_m, "BLOCK_N": setting.block_n}
        self.tiles_m, self.tiles_n = -(-self.sq // setting.block_m), -(-self.sk // setting.block_n)
        self.matrices = self.batch * self.heads
        self.whole_rows = {"BLOCK_M": setting.block_m, "BLOCK_S": 1 << max(self.sk - 1, 0).bit_length()}
        self.common: dict[str, Any] = {
            "lengths_ptr": setting.key_lengths,
            "scale_log2": setting.scale * _LOG2_E,
            "heads": self.heads,
            "group": self.group,
            "sq": self.sq,
            "sk": self.sk,
            "d": self.d,
            "align_end": int(setting.causal == "bottom-right"),
            "BLOCK_D": padded_dim(self.d),
            "MASK": (NONE if setting.causal is None else CAUSAL).value,
            **self.blocks,
        }
        self.values = {"dv": self.dv, "BLOCK_DV": padded_dim(self.dv)}

    def rows(self, value: float, like: torch.Tensor) -> torch.Tensor:
        """A statistic of the rows."""
        return torch.full((self.batch, self.heads, self.sq), value, dtype=torch.float32, device=like.device)

    def square(self, like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A matrix of queries by keys."""
        return torch.empty(self.batch, self.heads, self.sq, self.sk, dtype=dtype, device=like.device)


def _launch(kernel: Any, programs: int, **arguments: Any) -> None:
    if programs:
        kernel[(programs,)](**{name: _whole(x) for name, x in arguments.items()})


def _whole(x: Any) -> Any:
    return x.contiguous() if isinstance(x, torch.Tensor) else x


def _lse(m: torch.Tensor, row_sum: torch.Tensor) -> torch.Tensor:
    return (m + torch.where(row_sum == 0, 1, row_sum).log2()) * math.log(2)


def paper_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting) -> Forward:
    """Algorithm 2: O is kept in fp32 in memory and rounded once at the end."""
    shapes = _Shapes(q, v, setting)
    o = torch.zeros(*q.shape[:3], shapes.dv, dtype=torch.float32, device=q.device)
    m, row_sum = shapes.rows(-math.inf, q), shapes.rows(0.0, q)
    _launch(
        paper_forward_kernel,
        shapes.matrices,
        q_ptr=q,
        k_ptr=k,
        v_ptr=v,
        o_ptr=o,
        m_ptr=m,
        l_ptr=row_sum,
        **shapes.common,
        **shapes.values,
    )
    return Forward(o.to(q.dtype), _lse(m, row_sum), (m, row_sum))


def paper_backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, forward: Forward, setting: Setting
) -> Gradients:
    """Algorithm 4: (dQ, dK, dV); dQ is kept in fp32 in memory and rounded once at the end."""
    shapes = _Shapes(q, v, setting)
    m, row_sum = forward.kept
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (k, v))
    _launch(
        paper_backward_kernel,
        shapes.batch * shapes.kv_heads,
        q_ptr=q,
        k_ptr=k,
        v_ptr=v,
        o_ptr=forward.o,
        do_ptr=do,
        m_ptr=m,
        l_ptr=row_sum,
        dq_ptr=dq,
        dk_ptr=dk,
        dv_ptr=dv,
        scale=setting.scale,
        **shapes.common,
        **shapes.values,
    )
    return dq.to(q.dtype), dk, dv


def two_pass_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting) -> Forward:
    """Appendix B.1, with the maximum taken out."""
    shapes = _Shapes(q, v, setting)
    m, row_sum = shapes.rows(-math.inf, q), shapes.rows(0.0, q)
    o = torch.empty(*q.shape[:3], shapes.dv, dtype=q.dtype, device=q.device)
    programs = shapes.matrices * shapes.tiles_m
    statistics = {"m_ptr": m, "l_ptr": row_sum}
    _launch(statistics_kernel, programs, q_ptr=q, k_ptr=k, **statistics, **shapes.common)
    _launch(
        weighted_sum_kernel,
        programs,
        q_ptr=q,
        k_ptr=k,
        v_ptr=v,
        **statistics,
        o_ptr=o,
        **shapes.common,
        **shapes.values,
    )
    return Forward(o, _lse(m, row_sum), (m, row_sum))


def standard_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting) -> Forward:
    """Algorithm 0: S in fp32 and P in the dtype of q, both in memory."""
    shapes = _Shapes(q, v, setting)
    s, p = shapes.square(q, torch.float32), shapes.square(q, q.dtype)
    lse2 = shapes.rows(-math.inf, q)
    o = torch.empty(*q.shape[:3], shapes.dv, dtype=q.dtype, device=q.device)
    rows = shapes.matrices * shapes.tiles_m
    _launch(scores_kernel, rows * shapes.tiles_n, q_ptr=q, k_ptr=k, s_ptr=s, **shapes.common)
    _launch(softmax_kernel, rows, s_ptr=s, p_ptr=p, lse2_ptr=lse2, sq=shapes.sq, sk=shapes.sk, **shapes.whole_rows)
    _product(p, v, o, 1.0, shapes, transposed=False)
    return Forward(o, lse2 * math.log(2), (p,))


def standard_backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, forward: Forward, setting: Setting
) -> Gradients:
    """Algorithm 3: (dQ, dK, dV) of as many kv heads as query heads; dP in fp32 and dS in the dtype of q, both in memory.

    Raises:
        ValueError: query heads share kv heads.
    """
    shapes = _Shapes(q, v, setting)
    if shapes.group != 1:
        raise ValueError(f"q: {shapes.heads} query heads need as many kv heads, got {shapes.kv_heads}")
    (p,) = forward.kept
    dp, ds = shapes.square(q, torch.float32), shapes.square(q, q.dtype)
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    rows = shapes.matrices * shapes.tiles_m
    sizes = {"sq": shapes.sq, "sk": shapes.sk}
    _product(p, do, dv, 1.0, shapes, transposed=True)
    _launch(
        weight_gradient_kernel,
        rows * shapes.tiles_n,
        do_ptr=do,
        v_ptr=v,
        dp_ptr=dp,
        lengths_ptr=setting.key_lengths,
        heads=shapes.heads,
        group=shapes.group,
        **sizes,
        **shapes.values,
        **shapes.blocks,
    )
    _launch(score_gradient_kernel, rows, p_ptr=p, dp_ptr=dp, ds_ptr=ds, **sizes, **shapes.whole_rows)
    _product(ds, k, dq, setting.scale, shapes, transposed=False)
    _product(ds, q, dk, setting.scale, shapes, transposed=True)
    return dq, dk, dv


def _product(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: float, shapes: _Shapes, *, transposed: bool
) -> None:
    """C = scale A B, or scale A^T B."""
    rows, depth = c.shape[2], b.shape[2]
    block = shapes.blocks["BLOCK_N" if transposed else "BLOCK_M"]
    _launch(
        product_kernel,
        shapes.matrices * -(-rows // block),
        a_ptr=a,
        b_ptr=b,
        c_ptr=c,
        lengths_ptr=None if transposed else shapes.common["lengths_ptr"],
        scale=scale,
        heads=shapes.heads,
        group_b=1 if transposed else shapes.group,
        rows=rows,
        depth=depth,
        width=c.shape[3],
        BLOCK_M=block,
        BLOCK_N=shapes.blocks["BLOCK_M" if transposed else "BLOCK_N"],
        BLOCK_W=padded_dim(c.shape[3]),
        TRANSPOSED=transposed,
    )
