"""The arguments that `oracle` and `assert_attention_close` share, stated once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

__all__ = ["AttentionOptions", "check_names", "value_of", "with_options"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class AttentionOptions(TypedDict, total=False):
    """The problem beside q, k and v: keyword arguments of `oracle` and `assert_attention_close`, each of them optional.

    Tensors may be of torch, numpy or any framework with DLPack; lists are taken too. Pairs of rows and keys keep the axes
    `[B, Hq, Sq, Sk]` in every layout; under `thd` B is 1 and Sq, Sk count the tokens of all sequences.

    Attributes:
        layout: axes of q, k, v, O, dO and the gradients: `bhsd` (the default) `[B, H, S, D]`, `bshd` `[B, S, H, D]`, or `thd` `[T, H, D]`
            for packed sequences. LSE, delta and dLSE are `[B, Hq, Sq]`, under `thd` `[Hq, T]`.
        scale: of the logits, natural units; 1 / sqrt(D) by default.
        causal: `top-left` (row i sees keys j <= i) or `bottom-right` (j <= i + length of the keys - length of the queries, both of
            them the declared ones of the sequence).
        window: (left, right): a row at position p sees keys p - left <= j <= p + right; None on a side is unbounded. The position is i, or
            i + length of the keys - length of the queries under `causal="bottom-right"`.
        tree: parents of the query nodes, -1 for a root, otherwise a smaller index. The last Sq keys are the nodes, the keys before them a
            prefix that every node sees; a node sees itself and its ancestors, as far as `causal` and `window` show its row them. Packed sequences have a tree each, and so
            have the entries of a batch whose parents are `[B, Sq]`.
        key_lengths: `[B]` integers; keys from there on are padding and may hold anything.
        query_lengths: `[B]` integers; rows from there on are padding, of q and dO too.
        prefix_lengths: one integer per sequence, needs `causal`: a row also sees the keys before it, as far as every other mask lets it.
            Not with `tree`, nor with a right side of `window`.
        cu_q: cumulative rows of packed sequences, from 0, one more than sequences; B is 1. Needs `cu_k`.
        cu_k: cumulative keys of packed sequences.
        mask: bool, broadcasts to `[B, Hq, Sq, Sk]`, true where the row sees the key; combined with the other masks by AND.
        selection: integers `[B or 1, Hkv or 1, ceil(Sq / selection_rows), entries]`: the blocks of keys that these rows see, -1 for none. A
            list is a set: a block that stands twice counts once. Rows and keys are counted from the start of the buffers, of
            packed sequences too; the other masks hide keys of a named block as they hide others.
        selection_rows: rows in a row that share a list; 1 by default.
        selection_keys: keys of a block; 1 by default, lists of single keys.
        softcap: the scaled products become softcap * tanh(product / softcap); 0 is none.
        alibi_slopes: `[Hq]`; slope * -|position - key| is added to the logits.
        bias: `[B or 1, Hq or 1, Sq, Sk]`, finite, added to the logits, natural units.
        sink: `[Hq]`, finite, natural units: one more logit in every row that sees a key, with a value of 0.
        relative_bias: `[Hq, buckets]`, finite, natural units: a row at position p and a key add
            `relative_bias[h, distance_buckets[clamp(key - p, -reach, reach) + reach]]` to their logit, with the position of `window`.
        distance_buckets: `[2 * reach + 1]` integers from 0 to buckets - 1: the bucket of each clipped distance, that of `-reach` first.
            `relative_bias` needs it.
        dropout_p: probability that a weight is dropped, 0 <= p < 1; the others count times 1 / (1 - p). It needs `dropout_keep` or
            `dropout_seed`.
        dropout_keep: bool, broadcasts to `[B, Hq, Sq, Sk]`, true where the weight is kept.
        dropout_seed: 64 bits: the weights that are kept follow from Philox4x32-10 as in flashverify's own kernels (docs/kernels.md).
        dropout_offset: 32 bits, of the same generator; 0 by default.
        do: the gradient of O, shaped as O. Gradients are known where `do` or `dlse` is given; a missing one is zero.
        dlse: the gradient of the natural LSE, shaped as LSE.
    """

    layout: str
    scale: float | None
    causal: str | None
    window: tuple[int | None, int | None] | None
    tree: Any
    key_lengths: Any
    query_lengths: Any
    prefix_lengths: Any
    cu_q: Any
    cu_k: Any
    mask: Any
    selection: Any
    selection_rows: int
    selection_keys: int
    softcap: float | None
    alibi_slopes: Any
    bias: Any
    sink: Any
    relative_bias: Any
    distance_buckets: Any
    dropout_p: float
    dropout_keep: Any
    dropout_seed: int | None
    dropout_offset: int
    do: Any
    dlse: Any


_DEFAULTS: AttentionOptions = {
    "layout": "bhsd",
    "selection_rows": 1,
    "selection_keys": 1,
    "dropout_p": 0.0,
    "dropout_offset": 0,
}
"""Those that are not None."""


def value_of(options: AttentionOptions, name: str) -> Any:
    """The value of an option, or its default."""
    return options.get(name, _DEFAULTS.get(name))


def check_names(function: str, options: AttentionOptions) -> None:
    """Refuses a name that is no option, as Python does.

    Raises:
        TypeError: the message names it and what is accepted.
    """
    for name in options:
        if name not in AttentionOptions.__annotations__:
            accepted = ", ".join(AttentionOptions.__annotations__)
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}; accepted beside its own: {accepted}"
            )


def with_options(function: _Function) -> _Function:
    """Spells the options out in the signature of a function that takes them as `**options`, for `help` and editors."""
    own = list(inspect.signature(function).parameters.values())
    spelt = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_DEFAULTS.get(name),
            annotation=getattr(kind, "__forward_arg__", kind),
        )
        for name, kind in AttentionOptions.__annotations__.items()
    ]
    returned = inspect.signature(function).return_annotation
    function.__signature__ = inspect.Signature([*own[:-1], *spelt], return_annotation=returned)  # type: ignore[attr-defined]
    return function
