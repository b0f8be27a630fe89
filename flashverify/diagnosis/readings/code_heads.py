"""Scales, zero points and codes of other kv heads, as they are where a kernel numbers the heads of one operand in two ways."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.diagnosis.code_reading import Reading
    from flashverify.truth import Inputs

    Part = Callable[[Reading, Reading], Tensor | None]

__all__ = ["of_query_heads", "spread"]

_HEADS: tuple[tuple[str, Callable[[Tensor, int, int], Tensor]], ...] = (
    ("h % Hkv", lambda h, kv_heads, _group: h % kv_heads),
    ("h % group", lambda h, _kv_heads, group: h % group),
    ("h // Hkv", lambda h, kv_heads, _group: h // kv_heads),
    ("min(h, Hkv - 1)", lambda h, kv_heads, _group: h.clamp(max=kv_heads - 1)),
    ("(h + 1) // group", lambda h, _kv_heads, group: (h + 1) // group),
    ("h // (2 * group)", lambda h, _kv_heads, group: h // (2 * group)),
)


def of_query_heads(part: str, words: str = "") -> dict[str, Part]:
    """By their words, `[B, Hq, S, ...]` of what query head h reads; None where every one is its own or some do not exist.

    Args:
        part: `numbers`, `scale` or `zero`.
        words: what it is called; empty for its name.
    """
    return {
        f"({words or part} of kv head {how} for query head h)": partial(_of, to=to, part=part) for how, to in _HEADS
    }


def _of(
    mine: Reading,
    beside: Reading,  # noqa: ARG001
    *,
    to: Callable[[Tensor, int, int], Tensor],
    part: str,
) -> Tensor | None:
    x: Tensor = getattr(mine, part)
    kv_heads = x.shape[1]
    h = torch.arange(kv_heads * mine.group)
    read = to(h, kv_heads, mine.group)
    if torch.equal(read, h // mine.group) or int(read.max()) >= kv_heads:
        return None
    return x[:, read]


def spread(inputs: Inputs, given: dict[str, Any]) -> Inputs:
    """The problem with some operands exchanged; where one is of query heads, every operand of kv heads is repeated for them."""
    heads = max(x.shape[1] for x in given.values())
    kv_heads = inputs.k.shape[1]
    if heads > kv_heads and any(name.startswith(("k", "v")) for name in given):
        for name in ("k", "v", "k_scale", "v_scale"):
            x = given.get(name, getattr(inputs, name))
            if x is not None and x.shape[1] < heads:
                given = given | {name: x.repeat_interleave(heads // x.shape[1], 1)}
    return replace(inputs, **given)
