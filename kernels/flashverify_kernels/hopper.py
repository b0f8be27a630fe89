"""Which calls the Hopper kernels take, and their launches."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

import torch

from flashverify_kernels.arguments import sequences_of
from flashverify_kernels.config import HOPPER
from flashverify_kernels.device.mask import LOWER, SPARSE, UPPER
from flashverify_kernels.plans import launched
from flashverify_kernels.programs import programs_of
from flashverify_kernels.ragged import FAR, ragged
from flashverify_kernels.runtime import compute_capability
from flashverify_kernels.terms import LOG2_E
from flashverify_kernels.tiles import describable
from flashverify_kernels.views import strides

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify_kernels.config import Kind
    from flashverify_kernels.options import Options
    from flashverify_kernels.terms import Terms
    from flashverify_kernels.validation import CheckedCall

_GROUP = 64  # rows of a group of four warps
_QUERIES = 64  # of a tile that dK and dV walk; their bits do not depend on it
_KEYS = 128  # of a tile that the forward walks; its bits do
_EMPTY = 1.125  # rounds of pairs times the room, beside the pairs
_WIDTHS = (64, 128)  # head dimensions
_REGISTERS = {"maxnreg": 168}
"""Of three groups of warps, which change their share as they start, or of three programs on a multiprocessor."""


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
        and (kind != "forward" or config.block_n == _KEYS)
        and dtype in (torch.float16, torch.bfloat16)
        and call.d == call.dv
        and call.d in _WIDTHS
        and not call.mask.flags & ~(UPPER.value | LOWER.value | SPARSE.value)
        and not any(size % tile for size, tile in zip(call.mask.block_size or (), _tile(kind, call.d), strict=False))
        and call.terms.pairs == "plain"
        and call.terms.sink is None
        and (options.whole or (call.packed and max(call.rows, call.keys) < FAR))
        and (kind == "dkdv" or call.d > _GROUP or (kind == "forward" and options.whole))
        and all(x.dtype == dtype and describable(x) for x in tensors.values())
    )


def _tile(kind: Kind, d: int) -> tuple[int, int]:
    """Queries and keys that a program of the kernel takes together; they divide a block."""
    if kind == "dkdv":
        return _QUERIES, 2 * _GROUP
    if kind == "dq":
        return 2 * _GROUP, _GROUP
    return _GROUP if d <= _GROUP else 2 * _GROUP, _KEYS


def forward(
    call: CheckedCall, options: Options, tensors: dict[str, torch.Tensor], lse2: torch.Tensor
) -> Callable[[], Any]:
    """The launch that computes O and LSE; `tensors` are q, k, v and o."""
    from flashverify_kernels.device.hopper.forward import hopper_forward_kernel
    from flashverify_kernels.device.hopper.narrow import hopper_narrow_forward_kernel

    narrow = call.d <= _GROUP
    paired, programs = False, call.batch * call.heads * -(-call.sq // _GROUP)
    if not narrow:
        paired, programs = _shared(call, lse2.device)
    return functools.partial(
        launched,
        hopper_narrow_forward_kernel if narrow else hopper_forward_kernel,
        programs,
        *_described(tensors, call.packed, q=_GROUP, k=_KEYS, v=_KEYS, o=_GROUP),
        lse2,
        call.scale * LOG2_E,
        *(() if narrow else (call.batch,)),
        *_sizes(call),
        *_blocks(call, "forward"),
        *(() if narrow else _sequences(call, options)),
        UPPER=bool(call.mask.flags & UPPER.value),
        **({} if narrow else {"PAIRED": paired}),
        STAGES=2,
        num_warps=4,
        enable_fp_fusion=False,  # see `device.softmax.online_step`
        **(
            _REGISTERS if not narrow or call.mask.flags & (LOWER.value | SPARSE.value) else {}
        ),  # otherwise they suffice
    )


def _shared(call: CheckedCall, device: torch.device) -> tuple[bool, int]:
    """`shares` of a call, whose tiles have 128 queries; of packed sequences there is a program a tile, as their walks differ."""
    if call.packed:
        return False, programs_of(call, call.heads, call.sq, call.rows, 2 * _GROUP)
    tiles = _tiles(call, call.sq, 0, 2 * _GROUP)
    return shares(call.batch * call.heads, tiles, call.mask.flags, multiprocessors(device))


def _tiles(call: CheckedCall, length: int, axis: int, tile: int) -> int:
    """Tiles of queries (`axis` 0) or keys (1); under a pattern those of whole blocks."""
    size = tile if call.mask.block_size is None else call.mask.block_size[axis]
    return -(-length // size) * (size // tile)


def shares(heads: int, tiles: int, flags: int, room: int) -> tuple[bool, int]:
    """Whether tiles go in pairs, and how many programs share all tiles.

    As many programs as there is room for take equal shares; what each fetches for its next tile arrives beside its work. Where walks differ
    and the last round of pairs would leave much of the room empty, there is a program a tile, and the GPU spreads them.

    Args:
        heads: query heads of all batches.
        tiles: tiles of queries of a head.
        flags: parts of the mask.
        room: programs that run at a time.
    """
    if flags & LOWER.value or not flags & (UPPER.value | SPARSE.value):
        return False, min(heads * tiles, room)  # all walks are alike
    units = heads * (tiles - tiles // 2)
    if room * -(-units // room) > _EMPTY * units:
        return False, heads * tiles
    return True, min(units, room)


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Programs that run at a time where each takes a multiprocessor."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def dq(
    call: CheckedCall, options: Options, tensors: dict[str, torch.Tensor], lse2: torch.Tensor, delta: torch.Tensor
) -> Callable[[], Any]:
    """The launch that computes dQ; `tensors` are q, k, v, do and dq."""
    from flashverify_kernels.device.hopper.dq import hopper_dq_kernel

    paired, programs = _shared(call, lse2.device)
    return functools.partial(
        launched,
        hopper_dq_kernel,
        programs,
        *_described(tensors, call.packed, q=_GROUP, k=_GROUP, v=_GROUP, do=_GROUP, dq=_GROUP),
        lse2,
        delta,
        call.scale,
        call.scale * LOG2_E,
        call.batch,
        *_sizes(call),
        *_blocks(call, "dq"),
        *_sequences(call, options),
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

    return functools.partial(
        launched,
        hopper_dkdv_kernel,
        programs_of(call, call.kv_heads, call.sk, call.keys, 2 * _GROUP)
        if call.packed
        else call.batch * call.kv_heads * _tiles(call, call.sk, 1, 2 * _GROUP),
        *_described(tensors, call.packed, q=_QUERIES, k=_GROUP, v=_GROUP, do=_QUERIES, dk=_GROUP, dv=_GROUP),
        lse2,
        delta,
        call.scale,
        call.scale * LOG2_E,
        *_sizes(call),
        *_blocks(call, "dkdv"),
        *_sequences(call, options),
        UPPER=bool(call.mask.flags & UPPER.value),
        EVEN=not call.packed and call.sq % _QUERIES == 0 and lse2.data_ptr() % 16 == delta.data_ptr() % 16 == 0,
        STAGES=3 if call.d <= _GROUP else 2,
        num_warps=4,
        **_REGISTERS,
    )


def _sizes(call: CheckedCall) -> tuple[int, int, int, int, int | None, int]:
    """Query heads, query heads per kv head, queries, keys, and from where to where around its own number a query sees."""
    mask, shift = call.mask, call.mask.align_end * (call.sk - call.sq)
    if call.packed:  # each sequence has a shift of its own
        low, high = -mask.left, mask.right
    else:
        low, high = (min(max(edge, -call.sq), call.sk) for edge in (shift - mask.left, shift + mask.right))
    lower = low if mask.flags & LOWER.value else None
    return call.heads, call.heads // call.kv_heads, call.sq, call.sk, lower, high


def _blocks(call: CheckedCall, kind: Kind) -> tuple[Any, ...]:
    """The tables of the live blocks, their steps, and the size of a block; None for all of them where there is no pattern."""
    blocks = call.mask.blocks
    if blocks is None:
        return (None,) * 5
    tables = blocks.along_queries if kind == "dkdv" else blocks.along_keys
    return tables, *strides(tables)[:2], blocks.rows, blocks.keys


def _sequences(call: CheckedCall, options: Options) -> tuple[Any, ...]:
    """Where packed sequences begin, their number and how often it is halved, all queries, and whether edges end at the last key; None for all of them where there are none."""
    if not call.packed:
        return (None,) * 6
    given = sequences_of(options)
    return given.cu_q, given.cu_k, given.packed, given.halvings, call.rows, int(call.mask.align_end)


def _described(tensors: dict[str, torch.Tensor], packed: bool, **rows: int) -> list[Any]:
    """Descriptors of the tensors, in the order of `rows`, whose tiles have so many rows and all channels."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    found = []
    for name, count in rows.items():
        x = tensors[name]
        steps = [stride if size > 1 else x.shape[3] for stride, size in zip(x.stride(), x.shape, strict=True)][:3]
        shape = list(x.shape)
        if packed:
            shape, steps = ragged(shape, steps)
        tile = [*[1] * (len(shape) - 2), count, x.shape[3]]
        found.append(TensorDescriptor(x, shape, [*steps, 1], tile, _layout(len(shape))))
    return found


@functools.cache
def _layout(rank: int) -> Any:
    from triton.experimental.gluon.language import NVMMASharedLayout

    return NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=rank)
