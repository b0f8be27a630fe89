"""Names that one mistake gets on different cases, by the part of the mask or the modifier that shows it. Importing this loads no torch."""

from __future__ import annotations

__all__ = ["canonical", "family_of", "usual"]

_FAMILIES = (
    # One edge of a band: kernels make a causal mask of the right edge of a window.
    ("causal-one-key-more", "window-right-one-wider"),
    ("causal-one-key-less", "window-right-one-narrower"),
    ("causal-ignored", "window-right-ignored"),
    # One table of bits: kernels get a tree as they get a bitmap.
    ("bitmap-ignored", "tree-as-chain", "tree-ignored"),
    # One distance, or one head, from which several terms are looked up.
    ("alibi-without-shift", "relative-bias-without-shift"),
    ("alibi-from-the-end", "relative-bias-from-the-end"),
    ("alibi-shift-sign", "relative-bias-shift-sign"),
    ("alibi-of-the-buffers", "relative-bias-of-the-buffers"),
    ("alibi-signed-distance", "relative-bias-distance-sign"),
    ("alibi-off-by-one", "relative-bias-off-by-one"),
    ("alibi-slope-of-kv-head", "bias-of-kv-head", "relative-bias-of-kv-head", "sink-of-kv-head"),
    ("alibi-slope-of-next-head", "bias-of-next-head", "relative-bias-of-next-head", "sink-of-next-head"),
    ("alibi-slope-of-first-head", "bias-first-head", "relative-bias-first-head", "sink-first-head"),
    ("alibi-slope-of-first-member", "bias-of-first-member", "sink-of-first-member"),
    ("bias-without-log2e", "alibi-without-log2e", "relative-bias-without-log2e", "sink-without-log2e"),
    ("bias-with-log2e", "alibi-with-log2e", "sink-with-log2e"),
    # One finite number in place of minus infinity; one empty partial result.
    ("empty-rows-average", "hidden-pairs-with-a-number"),
    ("empty-lse-plus-infinity", "empty-rows-nan"),
    # One diagonal, of a causal mask or of a window.
    ("stale-causal", "stale-alignment"),
    # Rows past their length are computed, and seen where they are not cleared.
    ("padded-rows-not-cleared", "query-lengths-ignored"),
)


def canonical(first: str, second: str) -> str:
    """The name that stands for both, which is the one of the part that most kernels have; empty where they are no one mistake."""
    if first == second:
        return first
    found = next((family for family in _FAMILIES if first in family and second in family), ())
    return next((name for name in found if name in (first, second)), "")


def usual(name: str) -> str:
    """The name of the same mistake in the part that most kernels have; `name` itself where that is it."""
    return next(iter(family_of(name)), name)


def family_of(name: str) -> tuple[str, ...]:
    """The names of one mistake, the usual one first; none where a name has no others."""
    return next((family for family in _FAMILIES if name in family), ())
