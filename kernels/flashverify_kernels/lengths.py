"""The int32 tables of lengths, checked."""

import torch

from flashverify_kernels.options import Options
from flashverify_kernels.packed import Packed
from flashverify_kernels.runtime import readable

MAX_LENGTH = 2**31 - 2**12
"""Row numbers of a last, padded tile still fit an int32."""


def check_packed(packed: Packed | None, rows: int, keys: int, batch: int, like: torch.Tensor) -> None:
    """Check the limits of packed sequences."""
    if packed is None:
        return
    if not isinstance(packed, Packed):
        raise TypeError(f"packed: expected Packed, got {type(packed).__name__}")
    if batch != 1:
        raise ValueError(f"q: packed sequences share one batch, got {batch}")
    for name, limit in (("max_q", packed.max_q), ("max_k", packed.max_k)):
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"{name}: expected a whole number, got {limit!r} ({type(limit).__name__})")
        if not 0 <= limit <= MAX_LENGTH:
            raise ValueError(f"{name}: expected 0 to {MAX_LENGTH}, got {limit}")
    count = packed.cu_q.shape[0] if isinstance(packed.cu_q, torch.Tensor) and packed.cu_q.dim() == 1 else 0
    for name, cu, total, longest in (
        ("cu_q", packed.cu_q, rows, packed.max_q),
        ("cu_k", packed.cu_k, keys, packed.max_k),
    ):
        check_table(name, cu, (max(count, 1),), like.device)
        if not readable(cu):
            continue
        lengths = cu.diff()
        if int(cu[0]) != 0 or bool((lengths < 0).any()) or int(cu[-1]) > total:
            raise ValueError(
                f"{name}: expected values that start at 0, never fall and end by {total}, got {cu.tolist()}"
            )
        if bool((lengths > longest).any()):
            raise ValueError(
                f"max_{name[-1]}: expected at least {int(lengths.max())}, the longest sequence, got {longest}"
            )


def check_table(name: str, x: torch.Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """Check an int32 table."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.dtype != torch.int32:
        raise TypeError(f"{name}: expected torch.int32, got {x.dtype}")
    if tuple(x.shape) != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {tuple(x.shape)}")
    if not x.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor, got strides {x.stride()}")
    check_device(name, x, device)


def check_device(name: str, x: torch.Tensor, device: torch.device) -> None:
    """Check that a table lies where q does."""
    if x.device != device:
        raise ValueError(f"{name}: expected device {device} (that of q), got {x.device}")


def check_lengths(name: str, lengths: torch.Tensor | None, limit: int, sequences: int, device: torch.device) -> None:
    """Check a length per sequence, from 0 to `limit`; values only where they can be read without waiting for a GPU."""
    if lengths is None:
        return
    check_table(name, lengths, (sequences,), device)
    if readable(lengths) and sequences and (int(lengths.min()) < 0 or int(lengths.max()) > limit):
        raise ValueError(f"{name}: expected values from 0 to {limit}, got {lengths.tolist()}")


def check_prefix_lengths(options: Options, sequences: int, keys: int, device: torch.device) -> None:
    """Check the prefixes and what stands with them; the window is a checked one."""
    if options.prefix_lengths is None:
        return
    check_lengths("prefix_lengths", options.prefix_lengths, keys, sequences, device)
    if options.tree is not None:
        raise ValueError("prefix_lengths: cannot be combined with a tree, whose nodes see every key before them")
    if options.causal is None:
        raise ValueError("prefix_lengths: expected causal='top-left' or 'bottom-right' with it, got causal=None")
    if options.window is not None and options.window[1] is not None:
        raise ValueError(
            f"prefix_lengths: expected a window whose right side is None with it, got window={options.window!r}"
        )
