"""Which edits change anything on a case, and which of them change it alike: one run of a function in which every edited expression is computed too."""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flashverify.repair.exchange import code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flashverify.repair.candidates import Candidate
    from flashverify.repair.functions import Ran

__all__ = ["Probe", "probed", "watching"]

_NAME = "__flashverify_probe__"
_TIMES = 24
"""Times that an expression is computed with its edits; what differs later only is not seen."""
_SAFE = frozenset(
    """
    min max abs int float bool len range cdiv arange full zeros cat join split trans permute reshape view expand_dims broadcast_to
    where add sub mul minimum maximum clamp abs exp exp2 log log2 sqrt rsqrt sin cos erf floor ceil fma fdiv cast dot load to sum
    program_id num_programs float32 zeros_like full_like
    """.split()  # noqa: SIM905
)
"""Calls that compute a value and do nothing else."""
Position = tuple[int, int, int, int]


class Probe:
    """What edits made of the expressions that they change.

    Args:
        candidates: of one function.
    """

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self.groups: dict[Position, list[Candidate]] = defaultdict(list)
        for candidate in candidates:
            if candidate.node is not None:
                self.groups[_position(candidate.node)].append(candidate)
        self.variants = {key: _variants(group) for key, group in self.groups.items()}
        self.groups = {key: list(found) for key, found in self.variants.items() if found}
        self._keys = list(self.groups)
        self._places = {
            candidate: (number, at) for number, key in enumerate(self._keys) for at, candidate in enumerate(self.groups[key])
        }
        self._instead: tuple[int, int] | None = None
        self._times = [0] * len(self._keys)
        self._seen: list[list[Any]] = [[] for _ in self._keys]

    def has(self, candidate: Candidate) -> bool:
        """Whether it can compute an edit in place of what stands there."""
        return candidate in self._places

    @contextlib.contextmanager
    def instead(self, candidate: Candidate) -> Iterator[None]:
        """Until the end of the block an edit is computed in place of what stands there."""
        self._instead = self._places[candidate]
        try:
            yield
        finally:
            self._instead = None

    def saw(self, number: int, value: Any, *edited: Callable[[], Any]) -> Any:
        """The value of an expression, once its edits were computed as well; that of one edit alone where it stands in for it."""
        if self._instead is not None:
            return edited[self._instead[1]]() if number == self._instead[0] else value
        self._times[number] += 1
        if self._times[number] > _TIMES:
            return value
        seen = self._seen[number]
        if not seen:
            seen += [hashlib.blake2b(digest_size=8) for _ in range(len(edited) + 1)]
        own = _bytes(value)
        seen[0].update(own)
        for at, compute in enumerate(edited, 1):
            if seen[at] is None:
                continue
            try:
                other = _bytes(compute())
            except Exception:
                seen[at] = None
                continue
            seen[at].update(other)
        return value

    def distinct(self) -> tuple[dict[Candidate, list[Candidate]], set[Candidate]]:
        """By one edit, the cheapest, those that give the same values as it does, which are not those without an edit; and all that were asked about."""
        classes: dict[Candidate, list[Candidate]] = {}
        asked: set[Candidate] = set()
        for key, seen in zip(self._keys, self._seen, strict=True):
            if not seen:
                continue
            group = self.groups[key]
            asked.update(group)
            same: dict[bytes, list[Candidate]] = defaultdict(list)
            for candidate, digest in zip(group, seen[1:], strict=True):
                if digest is not None:
                    same[digest.digest()].append(candidate)
            same.pop(seen[0].digest(), None)
            for members in same.values():
                members.sort(key=lambda each: each.cost)
                classes[members[0]] = members
        return classes, asked


@contextlib.contextmanager
def watching(probe: Probe) -> Iterator[None]:
    """Until the end of the block the probe sees what `probed` functions compute."""
    vars(builtins)[_NAME] = probe.saw
    try:
        yield
    finally:
        del vars(builtins)[_NAME]


def probed(ran: Ran, probe: Probe) -> Any:
    """What runs in place of the function, so that the probe sees its expressions.

    Raises:
        SyntaxError: an edited expression is none.
    """
    return code_of(ran, lambda tree, shift: _Inserting(probe, shift).visit(tree))


class _Inserting(ast.NodeTransformer):
    def __init__(self, probe: Probe, shift: int) -> None:
        self._probe, self._shift = probe, shift
        self._numbers = {key: number for number, key in enumerate(probe.groups)}

    def visit(self, node: ast.AST) -> Any:
        found = super().visit(node)
        if not isinstance(node, ast.expr) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return found
        if getattr(node, "end_lineno", None) is None:
            return found
        key = _position(node, self._shift)
        number = self._numbers.pop(key, None)
        if number is None:
            return found
        variants = [_lambda(each) for each in self._probe.variants[key].values()]
        call = ast.Call(ast.Name(_NAME, ast.Load()), [ast.Constant(number), found, *variants], [])
        return ast.copy_location(call, node)


def _lambda(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)


def _variants(group: list[Candidate]) -> dict[Candidate, ast.expr]:
    """The edited expressions whose computing does nothing else."""
    texts = [_edited(each) for each in group]
    try:
        found = ast.parse(f"({','.join(texts)},)", mode="eval").body.elts  # type: ignore[attr-defined]
    except SyntaxError:
        found = []
    if len(found) != len(group):  # one of them is no expression
        found = [_parsed(text) for text in texts]
    return {candidate: tree for candidate, tree in zip(group, found, strict=True) if tree is not None and _is_safe(tree)}


def _edited(candidate: Candidate) -> str:
    assert candidate.node is not None
    source, edit = candidate.ran.source, candidate.edit
    start, end = source.span(candidate.node)
    return f"({source.text[start : edit.start]}{edit.text}{source.text[edit.end : end]}\n)"


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _position(node: ast.expr, shift: int = 0) -> Position:
    """Where a node stands; columns count from that of its function."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.lineno, node.col_offset + shift, node.end_lineno, node.end_col_offset + shift


def _is_safe(tree: ast.expr) -> bool:
    """Whether computing an expression once more does nothing."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Starred)):
            return False
        if isinstance(node, ast.Call) and _last(node.func) not in _SAFE:
            return False
    return True


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _bytes(value: Any) -> bytes:
    """What tells values apart."""
    if type(value).__name__ == "constexpr":
        value = value.value
    handle = getattr(value, "handle", None)
    if handle is not None:
        data = np.asarray(handle.data)
        return f"{value.type}{data.shape if data.size < 2 else ''}".encode() + data.tobytes()
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{tuple(value.shape)}".encode() + value.detach().double().contiguous().numpy().tobytes()
    return repr(value).encode()
