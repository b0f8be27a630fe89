"""From a problem to the options of the bundled kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.tree import single_trees

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem

__all__ = [
    "LOGITS",
    "MASKS",
    "block_size",
    "mask_kinds",
    "mask_options",
    "modifier_options",
    "pair_terms",
    "tree_mask",
    "whole_bias_gradient",
    "whole_tensors",
]


_Option = Callable[[Any, "Problem"], dict[str, Any]]
"""Maps (kernel package, problem) to keyword arguments of `Options`; a value of None is left out."""


def mask_kinds(case: Case) -> str:
    """The kinds of the mask as `launch_config` takes them."""
    mask = case.mask
    left, right = mask.window or (None, None)
    packed_blocks = mask.packed is not None and mask.blocks is not None
    banded = mask.causal is not None or mask.window is not None
    kinds = {
        "tree": mask.tree is not None and not banded,
        "causal": mask.causal is not None or right is not None,
        "left": left is not None,
        "bitmap": mask.bitmap is not None or packed_blocks or (mask.tree is not None and banded),
        "blocks": mask.blocks is not None and not packed_blocks,
        "prefix": mask.prefix_lengths is not None,
    }
    return "+".join(kind for kind, present in kinds.items() if present) or "none"


def block_size(case: Case) -> tuple[int, int] | None:
    """Queries and keys of a block that tiles must divide, or None: a pattern over packed sequences is a table of bits."""
    blocks = case.mask.blocks
    return None if blocks is None or case.mask.packed is not None else (blocks.rows, blocks.keys)


def pair_terms(case: Case) -> str:
    """What is done per query and key, as `launch_config` takes it."""
    if case.logits.bias or case.logits.relative_bias:
        return "bias"
    return "terms" if case.logits.softcap or case.logits.alibi or case.dropout else "plain"


def whole_tensors(case: Case) -> bool:
    """Whether every row of the tensors counts, as `launch_config` takes it."""
    mask = case.mask
    return mask.packed is None and mask.key_lengths is None and mask.query_lengths is None


def mask_options(kernels: Any, problem: Problem) -> dict[str, Any]:
    """The parts of the mask that the problem has, as keyword arguments of `Options`."""
    return _given(_MASKS, kernels, problem)


def modifier_options(kernels: Any, problem: Problem) -> dict[str, Any]:
    """What modifies the logits and the weights, as keyword arguments of `Options`."""
    return _given(_MODIFIERS, kernels, problem)


def _given(options: dict[str, _Option], kernels: Any, problem: Problem) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option in options.values():
        found |= option(kernels, problem)
    return {name: value for name, value in found.items() if value is not None}


def _packed(kernels: Any, problem: Problem) -> dict[str, Any]:
    if problem.case.mask.packed is None:
        return {}
    return {"packed": kernels.Packed(problem.cu_q, problem.cu_k, problem.max_q, problem.max_k)}


def tree_mask(kernels: Any, problem: Problem) -> Any:
    """The `TreeMask` of a problem that has a tree, or several."""
    mask, device = problem.case.mask, problem.q.device
    trees = [parents for _, parents in single_trees(mask.tree, mask.packed)]
    if len(trees) == 1 and mask.packed is None:
        return kernels.TreeMask.from_parents(trees[0], device)
    cu = tuple(accumulate(map(len, trees), initial=0))
    return kernels.TreeMask.from_parents(tuple(chain.from_iterable(trees)), device, cu=cu)


def _tree(kernels: Any, problem: Problem) -> dict[str, Any]:
    mask = problem.case.mask
    if mask.tree is None:
        return {}
    return {"tree": tree_mask(kernels, problem)}


def _blocks(kernels: Any, problem: Problem) -> dict[str, Any]:
    blocks = problem.case.mask.blocks
    if problem.blocks is None or blocks is None:
        return {}
    return {"blocks": kernels.BlockMask.from_bool(problem.blocks, blocks.rows, blocks.keys)}


def _bitmap(kernels: Any, problem: Problem) -> dict[str, Any]:
    if problem.bitmap is None:
        return {}
    see = problem.bitmap if problem.case.mask.packed is None else _within_sequences(problem)
    return {"bitmap": kernels.Bitmap.from_bool(see)}


def _dropout(kernels: Any, problem: Problem) -> dict[str, Any]:
    if not problem.dropout_p:
        return {}
    return {"dropout": kernels.Dropout(problem.dropout_p, problem.dropout_seed, problem.dropout_offset)}


def _relative_bias(kernels: Any, problem: Problem) -> dict[str, Any]:
    if problem.relative_bias is None:
        return {}
    return {"relative_bias": kernels.RelativeBias(problem.relative_bias, problem.distance_buckets)}


def _within_sequences(problem: Problem) -> torch.Tensor:
    """The bitmap of packed sequences with the keys numbered within the sequence of each row: `[1, Hq or 1, Sq, max_k]`."""
    see = problem.bitmap
    assert see is not None
    local = see.new_zeros(*see.shape[:3], problem.max_k)
    for rows, keys in _places(problem):
        local[:, :, rows, : keys.stop - keys.start] = see[:, :, rows, keys]
    return local


def _bias(problem: Problem) -> torch.Tensor | None:
    """The bias; that of packed sequences as `[1, Hq or 1, Sq, max_k]`, keys numbered within the sequence of each row, NaN behind them."""
    packed, bias = problem.case.mask.packed, problem.bias
    if packed is None or bias is None:
        return bias
    local = bias.new_full((*bias.shape[:3], problem.max_k), float("nan"))
    for rows, keys in _places(problem):
        local[:, :, rows, : keys.stop - keys.start] = bias[:, :, rows, keys]
    return local


def whole_bias_gradient(problem: Problem, local: torch.Tensor) -> torch.Tensor:
    """The gradient of the bias from that of `_bias`; 0 at pairs of different sequences."""
    assert problem.bias is not None
    whole = local.new_zeros(problem.bias.shape)
    for rows, keys in _places(problem):
        whole[:, :, rows, keys] = local[:, :, rows, : keys.stop - keys.start]
    return whole


def _places(problem: Problem) -> Iterator[tuple[slice, slice]]:
    """The rows and keys of each packed sequence."""
    packed = problem.case.mask.packed
    assert packed is not None
    for q, k in zip(pairwise(packed.cu_q), pairwise(packed.cu_k), strict=True):
        yield slice(*q), slice(*k)


_MASKS: dict[str, _Option] = {
    "causal": lambda _, problem: {"causal": problem.causal},
    "window": lambda _, problem: {"window": problem.window},
    "key_lengths": lambda _, problem: {"key_lengths": problem.key_lengths},
    "query_lengths": lambda _, problem: {"query_lengths": problem.query_lengths},
    "packed": _packed,
    "tree": _tree,
    "blocks": _blocks,
    "bitmap": _bitmap,
    "prefix_lengths": lambda _, problem: {"prefix_lengths": problem.prefix_lengths},
}
_LOGITS: dict[str, _Option] = {
    "softcap": lambda _, problem: {"softcap": problem.softcap},
    "alibi": lambda _, problem: {"alibi_slopes": problem.slopes},
    "bias": lambda _, problem: {"bias": _bias(problem)},
    "sink": lambda _, problem: {"sink": problem.sink},
    "relative_bias": _relative_bias,
}
_MODIFIERS = {**_LOGITS, "dropout": _dropout}

MASKS, LOGITS = tuple(_MASKS), tuple(_LOGITS)
"""The parts of the mask and the modifications of the logits that the kernels have, as `Supports` names them."""
