"""Which code of the bundled kernels is mutated, behind which adapter, and what a case must have to reach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.mutants.operators.structure import NOT_HELD

if TYPE_CHECKING:
    from flashverify.mutants.operators.walk import Change

__all__ = ["SCOPE", "Scope", "needs_of", "subject_of"]


@dataclass(frozen=True, slots=True)
class Scope:
    """One file.

    Attributes:
        file: in `flashverify_kernels`.
        subject: the adapter that runs it.
        only: the functions that are mutated; empty for all of them and what stands outside.
        never: functions that are left alone: no adapter runs them, or they decide about speed alone.
        needs: what a case must have, see `Mutant.needs`.
    """

    file: str
    subject: str = "bundled"
    only: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCOPE = (
    Scope("device/address.py"),
    Scope("device/decode.py", "bundled-decode"),
    Scope("device/delta.py", needs=("backward",)),
    Scope("device/dkdv.py", needs=("backward",)),
    Scope("device/dq.py", needs=("backward",)),
    Scope("device/dropout.py", needs=("dropout",)),
    Scope("device/forward.py"),
    Scope("device/logits.py", never=_names("terms_of_rows")),
    Scope("device/logits.py", "bundled-decode", only=_names("terms_of_rows")),
    Scope("device/mask.py"),
    Scope("device/merge.py", "bundled-chunked", never=_names("merge_backward_kernel")),
    Scope("device/pages.py", "bundled-decode"),
    Scope("device/schedule.py"),
    Scope("device/softmax.py"),
    Scope("arguments.py", never=_names("_aligned module")),
    Scope("bitmap.py", only=_names("pack"), needs=("bitmap",)),
    Scope("blocks.py", only=_names("_tables from_bool"), needs=("blocks",)),
    Scope("config.py", only=_names("padded_dim")),
    Scope("decode.py", "bundled-decode", only=_names("_launch _take_sink decode_forward")),
    Scope("decode_config.py", "bundled-decode", only=_names("launch_constants")),
    Scope("dropout.py", only=_names("threshold"), needs=("dropout",)),
    Scope("launch.py", never=_names("module")),
    Scope("masking.py", only=_names("check_mask block_size")),
    Scope(
        "merge.py",
        "bundled-chunked",
        only=_names("merge_forward launch_merge merge_constants _launch dense_rows"),
    ),
    Scope("packed.py", needs=("packed",)),
    Scope("reductions.py", needs=("backward",)),
    Scope("relative.py", needs=("relative_bias",)),
    Scope("results.py"),
    Scope("terms.py", only=_names("check_terms")),
    Scope("views.py"),
    Scope("tree_bitmap.py", needs=("tree", "bitmap")),
    Scope("tree.py", only=_names("nodes from_parents"), needs=("tree",)),
)
"""Validation of arguments, choice of tiles, ahead-of-time compilation and the dispatcher are left out: no value depends on them."""

_FUNCTIONS = {
    "span": (),
    "declared": (),
    "live_row": ("blocks",),
    "live_limits": ("blocks",),
    "squeeze": ("blocks",),
    "take_sink": ("sink",),
    "weights": ("backward",),
    "score_gradient": ("backward",),
    "dot_gradient": ("backward",),
    "tanh": ("softcap",),
    "tanh_slope": ("softcap", "backward"),
    "_complement": ("softcap",),
    "head_slope": ("alibi",),
    "head_sink": ("sink",),
    "head_bias": ("bias",),
    "live_schedule": ("blocks",),
    "load_bias": ("bias",),
    "key_begin": ("backward",),
    "key_end": ("backward",),
    "sure_begin": ("backward",),
    "bias_gradient": ("bias",),
    "head_relative": ("relative_bias",),
    "load_relative": ("relative_bias",),
    "table_gradient": ("relative_bias",),
    "_by_distance": ("relative_bias",),
    "row_positions": ("relative_bias",),
    "dropout_draws": ("dropout",),
    "sink_gradient": ("sink",),
    "backward": ("backward",),
}
_CONDITIONS = {
    "dropout.keep_share is not None": "dropout",
    "SPARSE & MASK": "blocks",
    "terms.bias.ptr is not None": "bias",
    "ds_ptr is not None": "bias",
    "terms.relative.ptr is not None": "relative_bias",
    "terms.slopes is not None": "alibi",
    "terms.sink is not None": "sink",
    "stats.dlse is not None": "backward",
    "sequences.q_lengths is not None": "query_lengths",
    "cu_ptr is not None": "packed",
    "cap_ratio is not None": "softcap",
    "terms.cap_log2 is not None": "softcap",
    "cap is not None": "softcap",
    "drop is not None": "dropout",
    "tables is not None": "blocks",
    "mask.blocks is not None": "blocks",
    "packed is not None": "packed",
    "terms.bias is not None": "bias",
    "LOWER & MASK": "window",
}
_CONFUSED = {"q_end": "query_lengths", "sq": "query_lengths"}
"""Without query lengths the declared number of queries is the stored one."""


_STEPS = {
    ("device/merge.py", "statistics"): frozenset(("loop", "accumulate", "limit", "term")),
    ("device/merge.py", "merged_rows"): frozenset(("loop", "accumulate", "limit", "term")),
}
"""More partials than one step takes are what splits give, not chunks."""


def subject_of(scope: Scope, change: Change) -> str:
    """The adapter that shows a change: of `merge`, what concerns states in base 2 or many partials is run by decoding."""
    many = change.edit.operator in _STEPS.get((scope.file, change.function), frozenset())
    base2 = "base2" in change.within or (change.function, change.edit.words) == ("launch_merge", NOT_HELD)
    return "bundled-decode" if many or base2 else scope.subject


def needs_of(scope: Scope, change: Change) -> tuple[str, ...]:
    """What a case must have to run what was changed and to tell it from what it was."""
    found = [*scope.needs, *_FUNCTIONS.get(change.function, ())]
    found += [_CONDITIONS[condition] for condition in change.within if condition in _CONDITIONS]
    operator, words = change.edit.operator, change.edit.words.split(" ")
    if operator == "confuse" and words[0] in _CONFUSED and scope.subject == "bundled":
        found.append(_CONFUSED[words[0]])
    ignored = change.edit.words.removesuffix(" is taken to be False")
    if operator == "condition" and change.edit.text == "False" and ignored in _CONDITIONS:
        found.append(_CONDITIONS[ignored])
    return tuple(dict.fromkeys(found))
