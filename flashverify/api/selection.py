"""Lists of chosen keys, as the pairs that they show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.api.options import value_of
from flashverify.api.tensors import as_tensor
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from flashverify.api.options import AttentionOptions
    from flashverify.case.case import Case

    Shown = Callable[[slice, slice], torch.Tensor]

__all__ = ["both_of", "selected"]


def selected(case: Case, options: AttentionOptions, device: torch.device) -> Shown | None:
    """Maps (rows, keys) to bool `[B or 1, Hq or 1, rows, keys]`, true where the row's list names the block of the key; None without lists.

    Raises:
        UsageError: a size is no positive integer or stands without lists, or the lists have another dtype, shape or entry than accepted.
    """
    import torch

    from flashverify.case.masks.selection_lists import named_array

    given = value_of(options, "selection")
    rows, keys = (_size(name, value_of(options, name), given) for name in ("selection_rows", "selection_keys"))
    if given is None:
        return None
    lists, blocks = as_tensor("selection", given), -(-case.seq_k // keys)
    _check(lists, case, -(-case.seq_q // rows), blocks)
    named = torch.from_numpy(named_array(lists.cpu().numpy(), blocks)).to(device)
    if named.shape[1] > 1:
        named = named.repeat_interleave(case.heads_q // case.heads_kv, 1)
    row, key = torch.arange(case.seq_q, device=device) // rows, torch.arange(case.seq_k, device=device) // keys
    return lambda i, j: named[:, :, row[i]][..., key[j]]


def both_of(first: Shown | None, second: Shown | None) -> Shown | None:
    """The pairs that both show; None shows all."""
    if first is None or second is None:
        return first or second
    return lambda rows, keys: first(rows, keys) & second(rows, keys)


def _size(name: str, value: Any, lists: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name}={value!r} is not accepted: an integer >= 1")
    if lists is None and value != 1:
        raise UsageError(f"{name}={value!r} is not accepted without selection, the lists of blocks")
    return value


def _check(lists: torch.Tensor, case: Case, count: int, blocks: int) -> None:
    if lists.dtype.is_floating_point or lists.dtype.is_complex or str(lists.dtype) == "torch.bool":
        raise UsageError(f"selection of dtype {lists.dtype} is not accepted: integers")
    shape = tuple(lists.shape)
    batch, heads = (1, case.batch), (1, case.heads_kv)
    if len(shape) != 4 or shape[0] not in batch or shape[1] not in heads or shape[2] != count:
        text = f"[{case.batch} or 1, {case.heads_kv} or 1, {count}, entries]"
        raise UsageError(f"selection of shape {list(shape)} is not accepted: {text}")
    if lists.numel() and not -1 <= int(lists.min()) <= int(lists.max()) < blocks:
        found = f"entries from {int(lists.min())} to {int(lists.max())}"
        raise UsageError(f"selection with {found} is not accepted: -1 for none, or blocks 0 to {blocks - 1}")
