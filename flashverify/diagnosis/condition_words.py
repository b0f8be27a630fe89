"""A condition in words, with the preposition that it takes."""

from __future__ import annotations

__all__ = ["between", "has_words", "part_words", "phrase"]

_NUMBERS = {
    "seq_q": "Sq",
    "seq_k": "Sk",
    "room_q": "the number of rows in memory",
    "room_k": "the number of keys in memory",
    "dim_qk": "D",
    "dim_v": "Dv",
    "group": "the number of query heads per group",
    "heads_q": "the number of query heads",
    "heads_kv": "the number of kv heads",
    "sequences": "the number of sequences",
    "page_size": "the page size",
    "window_left": "the left bound of the window",
    "window_right": "the right bound of the window",
    "gap": "the gap between rows",
    "offset": "the offset of the tensors",
    "splits": "the number of splits",
    "tile_keys": "the declared tile of keys",
    "max_product": "the largest |scaled product of q and k|",
    "max_logit": "the largest |logit|",
    "least_row_max": "the smallest row maximum of the logits",
    "rows": "Sq",
    "keys": "Sk",
    "row_max": "the row's largest logit",
    "least_rows": "Sq of the shortest sequence",
    "least_keys": "Sk of the shortest sequence",
    "cap": "the cap",
    "p": "the probability of dropout",
    "reach": "the largest distance of the relative bias",
    "longest_prefix": "the longest prefix",
    "blocks.rows": "the number of rows of a block",
    "blocks.keys": "the number of keys of a block",
    "selection.rows": "the number of rows that share a list",
    "selection.keys": "the number of keys of a block",
    "selection.entries": "the number of entries of a list",
}
_SAID = {
    ("scale_sign", "positive"): ("with a positive scale", "with a scale of 0 or below"),
    ("scale_sign", "zero"): ("with a scale of 0", "with a scale other than 0"),
    ("scale_sign", "negative"): ("with a negative scale", "with a scale of 0 or above"),
    ("aligned", "yes"): (
        "where rows begin at multiples of 8 elements",
        "where some rows do not begin at a multiple of 8 elements",
    ),
    ("group_power", "yes"): (
        "where a group has 1, 2, 4, ... query heads",
        "where the heads of a group are no power of 2",
    ),
    ("lengths_alike", "yes"): ("where all sequences have the same lengths", "where sequences have different lengths"),
    ("room_filled", "yes"): ("where every sequence fills the room", "where a sequence does not fill the room"),
    ("last_pages", "full"): ("where every last page is full", "where some last page is not full"),
    ("both_directions", "yes"): ("with a relative bias of both directions", "with a relative bias of one direction"),
    ("blocks.each", "yes"): ("with a pattern for each head", "with one pattern for all heads"),
    ("selection.each", "yes"): ("with lists for each kv head", "with one list for all heads"),
    ("page", "0"): ("in page 0 of the pool", "in pages of the pool behind page 0"),
    ("page", "last"): ("in the last page of the pool", "in pages of the pool before the last"),
    ("last_page", "full"): ("in sequences whose last page is full", "in sequences whose last page is not full"),
}
"""What a condition on a word says, and its opposite."""
_OPPOSITE = {("yes", "no"), ("full", "partial")}
_PARTS = {
    "causal": "a causal mask",
    "window": "a window",
    "window_left_given": "a left side of the window",
    "window_right_given": "a right side of the window",
    "key_lengths": "key lengths",
    "query_lengths": "query lengths",
    "packed": "packed sequences",
    "tree": "a tree",
    "blocks": "a block-sparse pattern",
    "bitmap": "a bitmap",
    "selection": "a selection by index",
    "prefix_lengths": "a prefix",
    "softcap": "softcap",
    "alibi": "ALiBi",
    "bias": "a bias",
    "sink": "sinks",
    "relative_bias": "a relative bias",
    "dropout": "dropout",
    "dlse": "a gradient through the LSE",
    "backward": "a backward",
    "expand": "k and v of stride 0 over heads",
    "strided": "strided vectors",
    "transposed": "tensors whose channels are not contiguous",
    "given_scale": "a scale of its own",
    "paged": "pages",
    "edits": "edited elements",
}
_SIGNS = {"==": "=", "!=": "is not", ">=": ">=", "<=": "<=", ">": ">", "<": "<"}
_INDICES = {
    "sequence": ("sequence", "sequences"),
    "head": ("query head", "query heads"),
    "member": ("query head of each group", "query heads of each group"),
    "kv_head": ("kv head", "kv heads"),
    "row": ("row", "rows"),
    "key": ("key", "keys"),
    "channel": ("channel", "channels"),
}
_SEEN = {">=": "{} keys or more", "<": "fewer than {} keys", "==": "{} keys"}
_TILES = {
    "first": "the first tile of {} {}",
    "later": "{1} behind the first tile of {0}",
    "last": "the last tile of {} {}",
    "partial": "a last tile of {} {} that is not full",
    "odd": "every second tile of {} {}, from the second one on",
    "even": "every second tile of {} {}, from the first one on",
}


def phrase(feature: str, comparison: str, value: int | float | str, *, modulus: int = 0, tile: int = 0) -> str:
    """`where Sq > Sk`, `with a window`, `in the last tile of 64 keys`."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if (said := _said(feature, comparison, text)) is not None:
        return said
    if feature in ("row_tile", "key_tile"):
        return "in " + _TILES.get(text, "the tile {2} of {0} {1}").format(tile, feature[:3] + "s", text)
    if feature in _INDICES and modulus:
        return f"in {'odd' if text == '1' else 'even'} {_INDICES[feature][1]}, counted from 0"
    if feature == "seen":
        return f"in rows that see {_SEEN[comparison].format(text)}" if text != "1" else "in rows that see a single key"
    if feature == "distance":
        return _at_distance(comparison, int(text))
    if feature in _INDICES:
        return f"in {_index(feature, comparison, text)}"
    if feature in ("rows", "keys"):
        return f"in sequences {_number(feature, comparison, text, modulus)}"
    if text in ("no", "yes") and feature in _PARTS:
        return f"{'with' if (text == 'yes') == (comparison == '==') else 'without'} {_PARTS[feature]}"
    return _named(feature, comparison, text) or _number(feature, comparison, text, modulus)


def _at_distance(comparison: str, number: int) -> str:
    """At which keys, by how far they lie from the row's position."""
    if number:
        return f"where the key {'lies' if comparison == '<=' else 'does not lie'} {-number} or more before the row's position"
    side = {"==": "is that at", "!=": "is not that at", "<": "lies before", ">": "lies behind"}[comparison]
    return f"where the key {side} the row's position"


def _said(feature: str, comparison: str, text: str) -> str | None:
    """What `_SAID` says of a condition; None where it says nothing."""
    for word, negated in ((text, comparison == "!="), *((a, comparison == "==") for a, b in _OPPOSITE if b == text)):
        if (feature, word) in _SAID and comparison in ("==", "!="):
            return _SAID[feature, word][negated]
    return "in pages of the pool behind page 0" if (feature, comparison, text) == ("page", ">=", "1") else None


def part_words(feature: str) -> str:
    """What a case has that has the feature, with its article: `a window`."""
    return _PARTS[feature]


def has_words(feature: str) -> bool:
    """Whether `part_words` knows the feature."""
    return feature in _PARTS


def between(feature: str, low: int | float | str, end: int | float | str) -> str:
    """`where 33 <= D < 65`."""
    name = _NUMBERS.get(feature, feature.replace("launch.", "the launch parameter "))
    return f"where {low} <= {name} < {end}"


def _number(feature: str, comparison: str, text: str, modulus: int) -> str:
    """A comparison of numbers."""
    name = _NUMBERS.get(feature, feature.replace("launch.", "the launch parameter "))
    if modulus:
        return _remainder(name, comparison, text, modulus)
    return f"where {name} {_SIGNS[comparison]} {_NUMBERS.get(text, text)}"


def _named(feature: str, comparison: str, text: str) -> str:
    """What a case says by a word; empty for numbers."""
    negated = comparison == "!="
    if feature == "dtype":
        return f"{'not ' * negated}in {text}"
    if feature == "precision":
        return f"{'not ' * negated}with {text} products"
    if feature == "causal":
        return f"{'not ' * negated}with a {text} causal mask"
    if feature in ("layout", "padding", "do", "regime"):
        what = {"do": "a dO that is", "padding": "padding of", "regime": "values of the regime"}.get(feature, feature)
        return f"{'not ' * negated}with {what} {text}"
    return f"{'not ' * negated}with {_PARTS[feature]} ({text})" if feature in _PARTS else ""


def _remainder(name: str, comparison: str, text: str, modulus: int) -> str:
    if text == "0":
        return f"where {name} is {'a' if comparison == '==' else 'no'} multiple of {modulus}"
    return f"where {name} modulo {modulus} {_SIGNS[comparison]} {text}"


def _index(feature: str, comparison: str, text: str) -> str:
    one, many = _INDICES[feature]
    if text in ("rows", "keys"):
        axis = "Sq" if text == "rows" else "Sk"
        return f"{many} from {axis} on" if comparison == ">=" else f"{many} before {axis}"
    if text == "last":
        return f"the last {one}" if comparison == "==" else f"{many} before the last"
    if (comparison, text) == (">=", "1"):
        return f"{many} behind the first one"
    if (comparison, text) == ("==", "0"):
        return f"the first {one}"
    return {">=": f"{many} from {text} on", "<": f"the first {text} {many}", "==": f"{one} {text}"}.get(
        comparison, f"{many} {comparison} {text}"
    )
