"""Which edits change anything on a case, and which of them change it alike: in one run every edited expression is computed too, see `copies`."""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flashverify.repair.candidates import Candidate

__all__ = ["CHOICE", "NAME", "Probe", "position", "watching"]

NAME, CHOICE = "__flashverify_probe__", "__flashverify_choice__"
"""By which the copy of a function finds `Probe.saw` and `Probe.chosen`."""
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
_OF_KERNELS = frozenset({"load", "add", "join"})
"""Those of them that may do something else outside of kernels: read a file, change a set, wait."""
_END = "\n"
"""Behind an expression, which may end with a comment."""
Position = tuple[int, int, int, int, bool]


class Probe:
    """Every edit of a function in one copy of it: what they make of the expressions that they change, and one of them in place of what stands there.

    Args:
        candidates: of one function.

    Attributes:
        variants: by place, what stands there with each edit: an expression, or a module of the statements.
    """

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        groups: dict[Position, list[Candidate]] = defaultdict(list)
        for candidate in candidates:
            groups[position(candidate.node)].append(candidate)
        found = {key: _variants(group) for key, group in groups.items()}
        self.variants = {key: each for key, each in found.items() if each}
        self.numbers = {key: number for number, key in enumerate(self.variants)}
        self._places = {x: (n, at) for n, each in enumerate(self.variants.values()) for at, x in enumerate(each)}
        self._instead: tuple[int, int] | None = None
        self._times = [0] * len(self.variants)
        self._seen: list[list[Any]] = [[] for _ in self.variants]

    def has(self, candidate: Candidate) -> bool:
        """Whether it can compute an edit in place of what stands there, once `probed` has made the copy."""
        return candidate in self._places

    def lacks(self, numbers: Iterable[int]) -> None:
        """The copy has no such places: a target has no value, and the head of a loop of a kernel is another one when it runs."""
        gone = set(numbers)
        self._places = {candidate: place for candidate, place in self._places.items() if place[0] not in gone}

    @contextlib.contextmanager
    def instead(self, candidate: Candidate) -> Iterator[None]:
        """Until the end of the block an edit is computed in place of what stands there."""
        self._instead = self._places[candidate]
        try:
            yield
        finally:
            self._instead = None

    def chosen(self, number: int) -> int:
        """Which edit of a statement happens; -1 for none of them."""
        return self._instead[1] if self._instead is not None and self._instead[0] == number else -1

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
        for variants, seen in zip(self.variants.values(), self._seen, strict=True):
            if not seen:
                continue
            group = list(variants)
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
    """Until the end of the block the probe sees what copies of functions compute."""
    vars(builtins).update({NAME: probe.saw, CHOICE: probe.chosen})
    try:
        yield
    finally:
        del vars(builtins)[NAME], vars(builtins)[CHOICE]


def _variants(group: list[Candidate]) -> dict[Candidate, Any]:
    """What stands there with each edit that is Python, and whose computing does nothing else."""
    texts = [_edited(each) for each in group]
    if isinstance(group[0].node, ast.stmt):
        statements = [_statements(text) for text in texts]
        return {candidate: tree for candidate, tree in zip(group, statements, strict=True) if tree is not None}
    try:
        found = ast.parse(f"({','.join(f'({text}{_END})' for text in texts)},)", mode="eval").body.elts  # type: ignore[attr-defined]
    except SyntaxError:
        found = []
    if len(found) != len(group):  # one of them is no expression
        found = [_expression(text) for text in texts]
    return {
        candidate: tree
        for candidate, tree in zip(group, found, strict=True)
        if tree is not None and _is_safe(tree, in_kernel=candidate.ran.kernel is not None)
    }


def _edited(candidate: Candidate) -> str:
    source, edit = candidate.ran.source, candidate.edit
    start, end = source.span(candidate.node)
    return f"{source.text[start : edit.start]}{edit.text}{source.text[edit.end : end]}"


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(f"({text}{_END})", mode="eval").body
    except SyntaxError:
        return None


def _statements(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def position(node: ast.expr | ast.stmt, shift: int = 0) -> Position:
    """Where a node stands, a statement apart from an expression that is all of it; columns count from that of its function."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    begin, end = node.col_offset + shift, node.end_col_offset + shift
    return node.lineno, begin, node.end_lineno, end, isinstance(node, ast.stmt)


def _is_safe(tree: ast.expr, *, in_kernel: bool) -> bool:
    """Whether computing an expression once more does nothing."""
    safe = _SAFE if in_kernel else _SAFE - _OF_KERNELS
    for node in ast.walk(tree):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Starred)):
            return False
        if isinstance(node, ast.Call) and called(node) not in safe:
            return False
    return True


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
