"""Operators on memory and types: masks and fills of loads and stores, casts, arguments that change places."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import TYPE_CHECKING

from flashverify.mutants.operators.walk import PERFORMANCE, Edit
from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.mutants.operators.walk import Place

__all__ = ["MEMORY", "WIDTH"]

WIDTH = "width"
"""The operator that narrows integers. When run only the check `addresses` shows some of it; `flashverify compile` reads it off the code."""

_FLAGS = {"LOWER": "UPPER", "UPPER": "LOWER", "BITS": "UPPER", "SPARSE": "BITS"}
_CONFUSED = {"q_end": "sq", "sq": "q_end", "k_end": "sk", "sk": "k_end", "low": "high", "high": "low", "b": "h"}
_KINDS = {
    "head": "b h hk bh kv_heads heads group",
    "row": "q0 k0 n0 m0 first start split splits",
    "limit": "sq sk q_end k_end rows row_limit length parts seq keys",
    "edge": "low high left right begin end",
    "index": "i j r",
    "factor": "scale scale_log2 cap_ratio cap_log2 keep_share keep_scale to_log2 from_log2 lse_scale slope shift",
    "tile": "pT dpT p dp m_i l_i m l pivot total lse delta see z dot",
    "counter": "stream seed offset threshold",
}
_STRIDES = frozenset(("part", "batch", "head", "row"))
"""Fields of records, and what is passed on for them."""
_RECORDS = frozenset(
    (
        "Blocks",
        "DropoutDraws",
        "LogitTerms",
        "MaskParts",
        "PageTable",
        "Sequences",
        "Sizes",
        "Statistics",
        "View",
        "Words",
    )
)
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()} | dict.fromkeys(
    ("i[:, None]", "j[None, :]", "i[None, :]", "j[:, None]"), "index"
)


def _mask(node: ast.AST, place: Place) -> Iterator[Edit]:
    """The mask or the fill of a load or store is left out or changed."""
    if not isinstance(node, ast.Call) or called(node) not in ("load", "store"):
        return
    keywords = {keyword.arg: keyword for keyword in node.keywords}
    mask, other = keywords.get("mask"), keywords.get("other")
    end = place.source.span(node)[1] - 1
    if mask is not None:
        yield Edit(_comma(place, mask), end, "", "mask", "the mask is left out")
    if other is not None:
        yield Edit(_comma(place, other), end, "", "fill", "the fill of masked lanes is left out")
        new = {"0.0": "1.0", "0": "1", "-1": "0"}.get(place.source.of(other.value), "0.0")
        yield place.replace(other.value, new, "fill", f"masked lanes are filled with {new}")


def _comma(place: Place, node: ast.AST) -> int:
    """Position of the comma before an argument."""
    return place.source.text.rindex(",", 0, place.source.span(node)[0])


def _conjunct(node: ast.AST, place: Place) -> Iterator[Edit]:
    """One part of a condition is left out, or "and" becomes "or"."""
    text = place.source.text
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        symbol, other = ("&", "|") if isinstance(node.op, ast.BitAnd) else ("|", "&")
        start, end = place.source.span(node)
        at, after = place.source.between(node.left, node.right, symbol)
        left, right = text[start:at].rstrip(), text[after:end].lstrip()
        if "MASK" not in right and "MASK" not in left:
            yield Edit(start, end, left, "conjunct", f"{right[:60]} is left out")
            yield Edit(start, end, right, "conjunct", f"{left[:60]} is left out")
            yield Edit(at, after, other, "boolean", f"{symbol} becomes {other}")
    if isinstance(node, ast.BoolOp) and not _presence(place.source.of(node)):
        for gone in node.values:
            rest = [f"({place.source.of(value)})" for value in node.values if value is not gone]
            joined = " and ".join(rest) if isinstance(node.op, ast.And) else " or ".join(rest)
            yield place.replace(node, f"({joined})", "conjunct", f"{place.source.of(gone)[:60]} is left out")


def _presence(text: str) -> bool:
    """Whether a condition asks what is there, how it is aligned or what a tile holds: the last only saves time."""
    return any(word in text for word in (" is ", "ALIGNED", "INTERPRETED", "isinstance", "any_visible", "is_cuda"))


def _flag(node: ast.AST, place: Place) -> Iterator[Edit]:
    """A part of the mask is asked for by the flag of another one."""
    if isinstance(node, ast.Name) and node.id in _FLAGS and isinstance(node.ctx, ast.Load):
        grown = place.parent
        if isinstance(grown, ast.BinOp) and isinstance(grown.op, (ast.BitAnd, ast.BitOr)):
            yield place.replace(node, _FLAGS[node.id], "flag", f"{node.id} becomes {_FLAGS[node.id]}")


def _cast(node: ast.AST, place: Place) -> Iterator[Edit]:
    """A conversion is left out or goes to a narrower type."""
    if isinstance(node, ast.Attribute) and node.attr == "float32" and called(place.parent) != "float32":
        yield place.replace(node, f"{place.source.of(node.value)}.float16", "dtype", "float32 becomes float16")
    if not isinstance(node, ast.Call) or called(node) != "to" or not isinstance(node.func, ast.Attribute):
        return
    target = place.source.of(node.args[0]) if node.args else ""
    if target == "tl.int64":
        if not _promoted(place):
            yield place.replace(node.args[0], "tl.int32", WIDTH, "int64 becomes int32")
    elif not (called(place.parent) == "store" and target.endswith("element_ty")):  # a store converts by itself
        yield place.replace(node, place.source.of(node.func.value), "cast", f"the conversion to {target} is left out")


def _promoted(place: Place) -> bool:
    """Whether the other factor is a stride, which has 64 bits: the product has them either way."""
    factors = [p.right for p in place.parents[-2:] if isinstance(p, ast.BinOp) and isinstance(p.op, ast.Mult)]
    return any(_is_stride(place, factor) for factor in factors)


def _is_stride(place: Place, node: ast.AST) -> bool:
    field = isinstance(node, ast.Attribute) and node.attr in _STRIDES
    return field or place.source.of(node).startswith("stride_")


def _swap(node: ast.AST, place: Place) -> Iterator[Edit]:
    """Two neighbouring arguments or results of the same kind change places."""
    if isinstance(node, ast.Call):
        for a, b in pairwise(node.args):
            if _kind(place, a) is not None and _kind(place, a) == _kind(place, b):
                yield _exchanged(a, b, place)
        if called(node) in ("_launch", "") or "kernel" in called(node) or called(node) in _RECORDS:
            named = [k for k in node.keywords if k.arg is not None and k.arg not in PERFORMANCE]
            for x, y in pairwise(named):
                if _keyword_kind(x.arg) == _keyword_kind(y.arg):
                    yield _exchanged(x.value, y.value, place)
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        entries = [(k.value, v) for k, v in pairs if isinstance(k, ast.Constant) and k.value not in PERFORMANCE]
        for (name, v), (other, w) in pairwise(entries):
            if _keyword_kind(str(name)) == _keyword_kind(str(other)):
                yield _exchanged(v, w, place)
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        for a, b in pairwise(node.value.elts):
            yield _exchanged(a, b, place)


def _kind(place: Place, node: ast.AST) -> str | None:
    text = place.source.of(node)
    if text.startswith("BLOCK_"):
        return text[:6]
    if _is_stride(place, node):
        return "stride"
    name = node.attr if isinstance(node, ast.Attribute) else text
    return "pointer" if text.endswith(("_ptr", "_head", "_view")) else _KIND_OF.get(name)


def _keyword_kind(name: str | None) -> str:
    name = name or ""
    if name in _STRIDES:
        return "stride"
    return "pointer" if name.endswith(("_ptr", "_view")) else name.split("_")[0] if name.startswith("BLOCK") else ""


def _exchanged(a: ast.AST, b: ast.AST, place: Place) -> Edit:
    (start, end), (after, last) = place.source.span(a), place.source.span(b)
    text = place.source.text
    joined = text[after:last] + text[end:after] + text[start:end]
    return Edit(start, last, joined, "swap", f"{text[start:end][:40]} and {text[after:last][:40]} change places")


def _confuse(node: ast.AST, place: Place) -> Iterator[Edit]:
    """A stored length for a declared one, one edge of a band for the other."""
    if (
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and isinstance(place.parent, (ast.Call, ast.Compare, ast.BinOp))
    ):
        other = _CONFUSED.get(node.id)
        if other in place.defined:
            yield place.replace(node, str(other), "confuse", f"{node.id} becomes {other}")


MEMORY: tuple[Callable[[ast.AST, Place], Iterator[Edit]], ...] = (
    _mask,
    _conjunct,
    _flag,
    _cast,
    _swap,
    _confuse,
)
