"""Which calls the Hopper kernels take, and their launches."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

import torch

from flashverify_kernels.config import HOPPER
from flashverify_kernels.device.mask import LOWER, SPARSE, UPPER
from flashverify_kernels.hopper_arguments import blocks, described, sequences, sizes
from flashverify_kernels.hopper_programs import shared_programs, whole_tiles
from flashverify_kernels.plans import launched
from flashverify_kernels.programs import programs_of
from flashverify_kernels.ragged import FAR
from flashverify_kernels.runtime import compute_capability
from flashverify_kernels.terms import LOG2_E
from flashverify_kernels.tiles import describable

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify_kernels.config import Kind
    from flashverify_kernels.options import Options
    from flashverify_kernels.terms import Terms
    from flashverify_kernels.validation import CheckedCall

_GROUP = 64  # rows of a group of four warps
_QUERIES = 64  # of a tile that dK and dV walk; their bits do not depend on it
_KEYS = {64: 128, 128: 128, 256: 64}  # of a tile that the forward walks, by head dimension; its bits do
_WIDTHS = {"forward": (64, 128, 256), "dq": (128,), "dkdv": (64, 128)}  # head dimensions
_REGISTERS = {"maxnreg": 168}
"""Of three groups of warps, which change their share as they start, or of three programs on a multiprocessor."""
_HALVES = {"maxnreg": 128}
"""Of two programs on a multiprocessor, with two groups of warps each."""


def takes(call: CheckedCall, options: Options, kind: Kind, tensors: dict[str, torch.Tensor]) -> bool:
    """Whether the Hopper kernel of this kind computes the call.

    Args:
        call: the checked call.
        options: of the call.
        kind: which kernel.
        tensors: all inputs and outputs, with their axes in the order (batch, head, sequence, channel).
    """
    return available(compute_capability(tensors["q"])) and suits(call, options, kind, tensors)


def available(capability: tuple[int, int] | None) -> bool:
    """Whether the kernels can run on a GPU of this compute capability: a Hopper GPU, and a Triton that has Gluon."""
    return capability == HOPPER and _importable()


def may_be_asked(
    capability: tuple[int, int] | None,
    tensors: tuple[torch.Tensor, ...],
    terms: Terms,
    dtype: torch.dtype | None = None,
) -> bool:
    """Whether a call may have the kernels by default, as far as `launch_config` does not know.

    A call that they cannot take has the tiles that are fastest without them. Views of some sequences or heads have the answer of the
    whole, so that their results are the same bits.

    Args:
        capability: compute capability of the GPU; None where kernels are interpreted.
        tensors: q, k and v.
        terms: of the call.
        dtype: of O; that of q where it is None.
    """
    return (
        available(capability)
        and terms.sink is None
        and dtype in (None, tensors[0].dtype)
        and all(describable(x, every=True) for x in tensors)
    )


@functools.cache
def _importable() -> bool:
    try:
        for name in ("forward", "narrow", "dq", "dkdv"):
            importlib.import_module(f"flashverify_kernels.device.hopper.{name}")
    except (ImportError, AttributeError):  # a Triton without Gluon, or with another one
        return False
    return True


def suits(call: CheckedCall, options: Options, kind: Kind, tensors: dict[str, torch.Tensor]) -> bool:
    """Whether the call is one that the Hopper kernel of this kind is written for; arguments as in `takes`."""
    config, dtype = call.configs[kind], tensors["q"].dtype
    return (
        config.hopper
        and call.d in _WIDTHS[kind]
        and (kind != "forward" or config.block_n == _KEYS[call.d])
        and dtype in (torch.float16, torch.bfloat16)
        and call.d == call.dv
        and not call.mask.flags & ~(UPPER.value | LOWER.value | SPARSE.value)
        and not any(size % tile for size, tile in zip(call.mask.block_size or (), _tile(kind, call.d), strict=False))
        and call.terms.pairs == "plain"
        and call.terms.sink is None
        and (options.whole or (call.packed and max(call.rows, call.keys) < FAR))
        and (options.whole or (kind, call.d) != ("forward", _GROUP))
        and all(x.dtype == dtype and describable(x) for x in tensors.values())
    )


def _tile(kind: Kind, d: int) -> tuple[int, int]:
    """Queries and keys that a program of the kernel takes together; they divide a block."""
    if kind == "dkdv":
        return _QUERIES, 2 * _GROUP
    if kind == "dq":
        return 2 * _GROUP, _GROUP
    return _GROUP if d <= _GROUP else 2 * _GROUP, _KEYS[d]


def forward(
    call: CheckedCall, options: Options, tensors: dict[str, torch.Tensor], lse2: torch.Tensor
) -> Callable[[], Any]:
    """The launch that computes O and LSE; `tensors` are q, k, v and o."""
    from flashverify_kernels.device.hopper.forward import hopper_forward_kernel
    from flashverify_kernels.device.hopper.narrow import hopper_narrow_forward_kernel

    narrow = call.d <= _GROUP
    rows, keys = _tile("forward", call.d)
    paired, programs = False, call.batch * call.heads * -(-call.sq // rows)
    if not narrow:
        paired, programs = shared_programs(call, lse2.device)
    return functools.partial(
        launched,
        hopper_narrow_forward_kernel if narrow else hopper_forward_kernel,
        programs,
        *described(tensors, call.packed, q=_GROUP, k=keys, v=keys, o=_GROUP),
        lse2,
        call.scale * LOG2_E,
        *(() if narrow else (call.batch,)),
        *sizes(call),
        *blocks(call, "forward"),
        *(() if narrow else sequences(call, options)),
        UPPER=bool(call.mask.flags & UPPER.value),
        **({} if narrow else {"PAIRED": paired}),
        STAGES=2,
        num_warps=4,
        enable_fp_fusion=False,  # see `device.softmax.online_step`
        **_REGISTERS,
    )


def dq(
    call: CheckedCall, options: Options, tensors: dict[str, torch.Tensor], lse2: torch.Tensor, delta: torch.Tensor
) -> Callable[[], Any]:
    """The launch that computes dQ; `tensors` are q, k, v, do and dq."""
    from flashverify_kernels.device.hopper.dq import hopper_dq_kernel

    paired, programs = shared_programs(call, lse2.device)
    return functools.partial(
        launched,
        hopper_dq_kernel,
        programs,
        *described(tensors, call.packed, q=_GROUP, k=_GROUP, v=_GROUP, do=_GROUP, dq=_GROUP),
        lse2,
        delta,
        call.scale,
        call.scale * LOG2_E,
        call.batch,
        *sizes(call),
        *blocks(call, "dq"),
        *sequences(call, options),
        UPPER=bool(call.mask.flags & UPPER.value),
        PAIRED=paired,
        K_STAGES=3,
        V_STAGES=2,
        num_warps=4,
        **_REGISTERS,
    )


def dkdv(
    call: CheckedCall, options: Options, tensors: dict[str, torch.Tensor], lse2: torch.Tensor, delta: torch.Tensor
) -> Callable[[], Any]:
    """The launch that computes dK and dV; `tensors` are q, k, v, do, dk and dv."""
    from flashverify_kernels.device.hopper.dkdv import hopper_dkdv_kernel

    form, registers = dkdv_form(call.d)
    block = form["GROUPS"] * _GROUP
    return functools.partial(
        launched,
        hopper_dkdv_kernel,
        programs_of(call, call.kv_heads, call.sk, call.keys, block)
        if call.packed
        else call.batch * call.kv_heads * whole_tiles(call, call.sk, 1, block),
        *described(tensors, call.packed, q=_QUERIES, k=_GROUP, v=_GROUP, do=_QUERIES, dk=_GROUP, dv=_GROUP),
        lse2,
        delta,
        call.scale,
        call.scale * LOG2_E,
        *sizes(call),
        *blocks(call, "dkdv"),
        *sequences(call, options),
        UPPER=bool(call.mask.flags & UPPER.value),
        **form,
        num_warps=4,
        **registers,
    )


def dkdv_form(d: int) -> tuple[dict[str, Any], dict[str, int]]:
    """The constants of the kernel for dK and dV that do not change its bits, and its registers.

    Narrow heads leave registers for a product ahead, and two programs share a multiprocessor.
    """
    narrow = d <= _GROUP
    return {"STAGES": 3, "GROUPS": 1 if narrow else 2, "AHEAD": narrow}, _HALVES if narrow else _REGISTERS
