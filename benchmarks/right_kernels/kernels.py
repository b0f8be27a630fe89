"""Right kernels in odd conventions, by name: subjects that a check must not flag."""

from __future__ import annotations

import math
from typing import Any

import torch

from flashverify import Contract, Form, Problem, Supports, subject
from right_kernels.tiled import Tiled, operands

__all__ = ["KERNELS"]

KERNELS: dict[str, Any] = {}
"""Every kernel by name."""

_MASKS = ("causal", "window", "key_lengths")
_PLAIN: dict[str, Any] = {"masks": _MASKS, "non_finite": False, "dlse": True}


def _tiled(
    name: str,
    form: dict[str, Any] | None = None,
    *,
    supports: dict[str, Any] | None = None,
    contract: Contract | None = None,
    **how: Any,
) -> None:
    """A kernel with a backward written by hand. Without a form it is declared as a backward of the stored O and LSE."""
    kernel = Tiled(**how)
    given = contract or Contract(reads_outputs=None if form and {"delta_from", "p_from"} & form.keys() else True)
    declared = None if form is None else Form(lse_base=given.lse_base or "e", **form)
    accepted = Supports(**(_PLAIN | (supports or {})))
    backward = kernel.backward if accepted.backward else None
    function = kernel.forward
    made = subject(name=name, supports=accepted, contract=given, form=declared, backward=backward)(function)
    KERNELS[name] = made


_tiled("flash", {"block_n": 16, "key_order": "ascending"})
_tiled("tiles_in_reverse", block=16, order="down")
_tiled("tiles_in_any_order", order="random", contract=Contract(reads_outputs=True, deterministic=None))
_tiled("lse_in_base_2", base2=True, contract=Contract(lse_base="2", reads_outputs=True))
_tiled("natural_exponential", {"exp": "exp"}, natural=True)
_tiled("lse_of_an_empty_row_is_0", empty_lse=0.0, contract=Contract(empty_row_lse=0.0, reads_outputs=True))
_tiled(
    "empty_rows_hold_anything",
    empty_o=7.0,
    empty_lse=math.nan,
    contract=Contract(empty_row_o=None, empty_row_lse=None, reads_outputs=True),
)
_tiled("normalised_through_the_lse", {"normalise": "lse"}, normalise="lse")
_tiled("two_passes", {"normalise": "lse_weights"}, normalise="lse_weights")
_tiled("normalised_every_block", {"normalise": "every_block", "block_n": 16}, normalise="every_block")
_tiled("weights_divided_before_their_cast", {"normalise": "before_cast"}, normalise="before_cast")
_tiled("split_and_merged", {"n_splits": 3}, splits=3)
_tiled("lazy_rescale", {"rescale_threshold": 8.0}, tau=8.0)
_tiled("q_scaled_in_the_input_dtype", {"prescale_fwd": "q", "prescale_bwd": "q"}, prescale=True)
_tiled("row_sum_of_rounded_weights", {"row_sum": "rounded"}, row_sum="rounded")
_tiled("products_in_16_bits", {"pv_dtype": "input", "dp_dtype": "input"}, narrow=("pv", "dp"))
_tiled("delta_of_p", {"delta_from": "p", "p_from": "lse"}, delta="p")
_tiled("delta_of_p_kept", {"delta_from": "p", "p_from": "forward"}, delta="p", kept=True)
_tiled("delta_of_the_unrounded_o", {"delta_from": "o_fp32", "p_from": "lse"}, delta="o_fp32")
_tiled("p_kept_and_stored_o", {"delta_from": "o", "p_from": "forward"}, kept=True)
_tiled("any_delta_undeclared", contract=Contract(), delta="p", kept=True)
_tiled("ds_scaled_before_its_cast", {"scale_ds": "before"}, scale_ds="before")
_tiled("dp_starts_at_minus_delta", {"dp_init": "minus_delta"}, minus_delta=True)
_tiled("ds_of_the_rounded_p", {"ds_from": "p_rounded"}, ds_rounded=True)
_tiled("causal_top_left_square", supports={"masks": ("causal",), "causal": ("top-left",), "square": True})
_tiled("window_aligned_bottom_right", supports={"masks": ("window",), "window_alignments": ("bottom-right",)})
_tiled(
    "smoothed_k",
    {"k_smoothed": True},
    smoothed=True,
    supports={"masks": (), "backward": False, "dlse": False},
    contract=Contract(gradients=frozenset()),
)
_tiled("forward_only", supports={"backward": False, "dlse": False}, contract=Contract(gradients=frozenset()))


def _kernel(contract: Contract | None = None, form: Form | None = None, **supports: Any) -> Any:
    def keep(function: Any) -> Any:
        made = subject(supports=Supports(**(_PLAIN | supports)), contract=contract, form=form)(function)
        KERNELS[made.name] = made
        return made

    return keep


def _definition(p: Problem, s: torch.Tensor, v: torch.Tensor, see: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s = torch.where(see, s, -math.inf)
    empty = ~see.any(-1, keepdim=True)
    weights = torch.where(empty, 0.0, torch.softmax(torch.where(empty, 0.0, s), -1))
    lse = torch.where(empty, -math.inf, torch.logsumexp(torch.where(empty, 0.0, s), -1, keepdim=True)).squeeze(-1)
    return (weights @ v).to(p.q.dtype), lse


@_kernel()
def autograd_of_the_definition(p: Problem) -> Any:
    """Undeclared: P is kept, delta is made of it."""
    q, k, v, see = operands(p)
    return _definition(p, q @ k.mT * p.scale, v, see)


@_kernel()
def float64_inside(p: Problem) -> Any:
    """Everything in float64, rounded at the end."""
    q, k, v, see = operands(p)
    o, lse = _definition(p, q.double() @ k.double().mT * p.scale, v.double(), see)
    return o, lse.float()


@_kernel()
def other_axes(p: Problem) -> Any:
    """O as `[B, S, H, D]` and the LSE as `[B, S, H]`."""
    q, k, v, see = operands(p)
    o, lse = _definition(p, q @ k.mT * p.scale, v, see)
    return p.outputs(o.transpose(1, 2), lse.transpose(1, 2), "bshd", "bsh")


@_kernel(Contract(lse_base=None), dlse=False)
def no_lse(p: Problem) -> Any:
    """O alone."""
    q, k, v, see = operands(p)
    return _definition(p, q @ k.mT * p.scale, v, see)[0]


@_kernel(masks=("causal",), causal=("top-left",))
def masked_with_the_lowest_number(p: Problem) -> Any:
    """A mask of the lowest number of fp32, where every row sees a key."""
    q, k, v, see = operands(p)
    s = torch.where(see, q @ k.mT * p.scale, torch.finfo(torch.float32).min)
    return (torch.softmax(s, -1) @ v).to(p.q.dtype), torch.logsumexp(s, -1)


@_kernel(Contract(empty_row_lse="sink"), logits=("sink",), masks=("causal", "window"))
def sink_as_a_column(p: Problem) -> Any:
    """The sink is one more column, which the LSE of a row without keys holds too."""
    q, k, v, see = operands(p)
    s = torch.where(see, q @ k.mT * p.scale, -math.inf)
    column = (
        s.new_full((*s.shape[:3], 1), -math.inf) if p.sink is None else p.sink.view(1, -1, 1, 1).expand(*s.shape[:3], 1)
    )
    every = torch.cat([s, column], -1)
    none = torch.isinf(every).all(-1, keepdim=True)
    safe = torch.where(none, 0.0, every)
    weights = torch.where(none, 0.0, torch.softmax(safe, -1))[..., :-1]
    lse = torch.where(none, -math.inf, torch.logsumexp(safe, -1, keepdim=True)).squeeze(-1)
    return (weights @ v).to(p.q.dtype), lse


@_kernel(
    form=Form(
        s_dtype="input", dp_dtype="input", normalise="before_cast", ds_from="p_rounded", scale_ds="before",
        delta_from="p", p_from="forward",
    ),
    masks=("causal",), causal=("top-left",), gqa=False, dlse=False, dtypes=("fp16", "bf16"),
)  # fmt: skip
def products_of_16_bit_tensors(p: Problem) -> Any:
    """As the math path of torch: S, P and dP are tensors of the input dtype."""
    mask = p.dense_mask()
    s = p.q @ p.k.mT * p.scale
    s = s if mask is None else s.masked_fill(~mask, -math.inf)
    return torch.softmax(s, -1) @ p.v, torch.logsumexp(s.float(), -1)


@_kernel(Contract(padding="undefined"), masks=("packed",), required_masks=("packed",), dlse=False)
def packed_tails_unwritten(p: Problem) -> Any:
    """Sequences one after the other; what lies behind the last is left as it was."""
    x, group = p.varlen(), p.q.shape[1] // p.k.shape[1]
    o, lse = [], []
    rows, keys = x.cu_seqlens_q.tolist(), x.cu_seqlens_k.tolist()
    for first, last, low, high in zip(rows, rows[1:], keys, keys[1:], strict=False):
        q = x.q[first:last].transpose(0, 1).float()
        k, v = (y[low:high].transpose(0, 1).float().repeat_interleave(group, 0) for y in (x.k, x.v))
        s = q @ k.mT * p.scale
        some = high > low
        o.append(
            torch.softmax(s, -1) @ v
            if some
            else q.new_zeros(*q.shape[:2], v.shape[-1]) + 0 * q.sum() + k.sum() + v.sum()
        )
        lse.append(torch.logsumexp(s, -1) if some else q.new_full(q.shape[:2], -math.inf))
    tail = x.q.shape[0] - rows[-1]
    o.append(torch.full((x.q.shape[1], tail, x.v.shape[-1]), 13.0))
    lse.append(torch.full((x.q.shape[1], tail), math.nan))
    return p.outputs(torch.cat(o, 1).to(p.q.dtype), torch.cat(lse, 1), "htd", "ht")
