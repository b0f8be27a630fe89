"""Which things a first call of a process may leave behind, which cases have them, and the keys under which a call is the first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case

    Key = Callable[[Case], Any]

__all__ = ["FEW_VALUES", "HAS", "KEYS", "USUAL", "first_with"]

HAS: dict[str, Callable[[Case], bool]] = {
    "scale": lambda _: True,
    "softcap": lambda case: case.logits.softcap is not None,
    "window": lambda case: case.mask.window is not None,
    "window-left": lambda case: case.mask.window is not None and case.mask.window[0] is not None,
    "window-right": lambda case: case.mask.window is not None and case.mask.window[1] is not None,
    "dropout": lambda case: bool(case.dropout),
    "slopes": lambda case: bool(case.logits.alibi),
    "sink": lambda case: case.logits.sink,
    "bias": lambda case: case.logits.bias is not None,
    "relative-bias": lambda case: case.logits.relative_bias is not None,
    "key-lengths": lambda case: case.mask.key_lengths is not None,
    "query-lengths": lambda case: case.mask.query_lengths is not None,
    "prefix-lengths": lambda case: case.mask.prefix_lengths is not None,
    "cu-seqlens": lambda case: case.mask.packed is not None,
    "page-table": lambda case: case.storage.page_size is not None,
    "bitmap": lambda case: case.mask.bitmap is not None,
    "blocks": lambda case: case.mask.blocks is not None,
    "tree": lambda case: case.mask.tree is not None,
    "selection": lambda case: case.mask.selection is not None,
}
"""Things that have so many values that a kernel which keeps nothing does not compute by that of another call, and which cases have them."""
USUAL: dict[str, Callable[[Case], bool]] = {
    "scale": lambda case: math.frexp(abs(case.softmax_scale))[0] == 0.5 or case.softmax_scale == case.dim_qk**-0.5,
    "softcap": lambda case: case.logits.softcap is not None and case.logits.softcap.is_integer(),
}
"""Where the value of a thing is one that code may hold as a constant."""
FEW_VALUES: dict[str, Callable[[Case], bool]] = {
    "causal": lambda case: case.mask.causal is not None,
    "alignment": lambda case: case.mask.causal is not None or case.mask.window is not None,
}
"""Things that a kernel which keeps nothing may take for another one always: asked only where a fresh process is right."""
KEYS: tuple[tuple[str, Key], ...] = (
    ("the first call of the process that has one", lambda _: ()),
    ("the first one with a window on the same sides", lambda case: tuple(x is None for x in case.mask.window or ())),
    ("the first one with the same parts of the mask", lambda case: (case.mask.parts(), _sides(case))),
    ("the first one with a mask on the same sides of the diagonal", lambda case: _sides(case)),
    ("the first one with its dtype", lambda case: case.dtype),
    ("the first one with its head dims", lambda case: (case.dim_qk, case.dim_v)),
    ("the first one with its head dim of Q and K", lambda case: case.dim_qk),
    ("the first one with its number of query heads", lambda case: case.heads_q),
    ("the first one with its number of kv heads", lambda case: case.heads_kv),
    ("the first one with its number of sequences", lambda case: _sequences(case)),
    ("the first one with its number of rows", lambda case: case.seq_q),
    ("the first one with its number of keys", lambda case: case.seq_k),
    ("the first one with its launch parameters", lambda case: case.launch),
)
"""Keys under which the first call is kept, in words, and as a function of the case."""


def _sides(case: Case) -> tuple[bool, ...]:
    """Whether keys behind and before a row's position are hidden, and which other parts of a mask decide pairs: what kernels are compiled for."""
    mask = case.mask
    left, right = mask.window or (None, None)
    after = mask.causal is not None or right is not None or mask.tree is not None
    patterns = mask.tree is not None or mask.bitmap is not None
    return after, left is not None, patterns, mask.blocks is not None, mask.prefix_lengths is not None


def _sequences(case: Case) -> int:
    return case.batch if case.mask.packed is None else len(case.mask.packed.lengths())


def first_with(
    before: tuple[Case, ...], name: str, key: Key, case: Case, has: dict[str, Callable[[Case], bool]]
) -> Case | None:
    """The first of the cases that has the thing `name` and the key of `case`; None where there is none."""
    return next((each for each in before if has[name](each) and key(each) == key(case)), None)
