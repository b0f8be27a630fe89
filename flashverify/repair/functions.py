"""The functions of a subject that ran on a case: their text, the lines that ran, and of what kind their names were."""

from __future__ import annotations

import ast
import gc
import sys
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from flashverify.repair.family import Family
from flashverify.repair.kinds import floats_of, likeness
from flashverify.repair.tracing import Seen
from flashverify.source_text import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Ran", "executed"]


@dataclass(eq=False)
class Ran:
    """One function that ran.

    Attributes:
        file: that defines it.
        source: its text.
        node: the function.
        top: the statement of the module that it stands in: itself, a class, or a function around it.
        lines: numbers of the lines that ran.
        kinds: by name that it read, what kind of value it had, see `kinds_of`; `a.b` is a field of a tuple with names.
        returned: of what kind its value was; empty where it had none of these.
        kernel: the Python function of a kernel, or of what kernels call; None where it is plain Python.
        functions: the plain functions with this code.
        under: the kernels that ran it, and the passes in which it ran outside of one.
        family: how the functions that ran write things, kernels apart from plain Python.
    """

    file: Path
    source: Source
    node: ast.FunctionDef
    top: ast.stmt
    lines: set[int] = field(default_factory=set)
    kinds: dict[str, str] = field(default_factory=dict)
    returned: str = ""
    kernel: Any = None
    functions: list[FunctionType] = field(default_factory=list)
    under: set[str] = field(default_factory=set)
    family: Family = field(default_factory=lambda: Family(()))

    @property
    def name(self) -> str:
        """What it is called."""
        return self.node.name

    @property
    def globals(self) -> dict[str, Any]:
        """The names of its module."""
        return getattr(self.kernel or next(iter(self.functions), None), "__globals__", {})

    @cached_property
    def read(self) -> frozenset[str]:
        """The names, and fields, that it reads."""
        nodes = (each for each in ast.walk(self.node) if isinstance(each, (ast.Name, ast.Attribute)))
        return frozenset(self.source.of(each) for each in nodes if isinstance(each.ctx, ast.Load))

    def names_of(self, kind: str, *, near: str = "") -> list[str]:
        """Names of a kind, those first that the function reads, of these those that are spelled most like `near`."""
        found = [name for name, other in self.kinds.items() if other == kind]
        return sorted(found, key=lambda name: (name not in self.read, -likeness(near, name)))

    @cached_property
    def known(self) -> frozenset[str]:
        """Names that mean something in it."""
        names = {name.partition(".")[0] for name in self.kinds} | {name.partition(".")[0] for name in self.read}
        return frozenset(names | set(self._first_assigned) | set(self.globals))

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """The comparisons of tensors, and what is made of them, that stand in the function, each once."""
        found = (each for each in ast.walk(self.node) if isinstance(each, ast.Compare))
        of_tensors = (each for each in found if "[" in self.source.of(each) or self._reads_a_tensor(each))
        named = [name for name, kind in self.kinds.items() if kind.startswith("bool[")]
        return tuple(dict.fromkeys([*named, *map(self.source.of, of_tensors)]))

    def _reads_a_tensor(self, node: ast.AST) -> bool:
        names = (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
        return any("[" in self.kinds.get(name, "") for name in names)

    @cached_property
    def text(self) -> str:
        """How it is written, in one line."""
        return " ".join(self.source.of(self.node).split())

    @cached_property
    def _first_assigned(self) -> dict[str, int]:
        """By name the line from which on it may have a value."""
        arguments = (*self.node.args.posonlyargs, *self.node.args.args, *self.node.args.kwonlyargs)
        found = {each.arg: 0 for each in arguments}
        for node in ast.walk(self.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] = min(node.lineno, found.get(node.id, node.lineno))
        return found

    def has_value(self, name: str, statement: ast.stmt) -> bool:
        """Whether a name may have a value before a statement."""
        return self._first_assigned.get(name, statement.lineno) < statement.lineno


def executed(run: Callable[[], object], kernels: Callable[[], dict[CodeType, FunctionType]]) -> list[Ran]:
    """The functions that run during a call, each with the lines that ran; those first that ran first.

    What belongs to the harness, to torch, Triton and NumPy, or to Python itself is left out, and so is what has no file.

    Args:
        run: what is called.
        kernels: by the code that runs, the functions of interpreted kernels, asked afterwards.

    Raises:
        Exception: what the call raises.
    """
    seen = Seen()
    before = sys.gettrace()
    sys.settrace(seen.entered)
    try:
        run()
    finally:
        sys.settrace(before)
    of_kernels = kernels()
    holders = _holders(seen.lines)
    ran = []
    for code, lines in seen.lines.items():
        function = _found(code, of_kernels.get(code), holders[code])
        if function is not None:
            function.lines, function.returned = lines, seen.returned.get(code, "")
            function.kinds = floats_of(function.globals) | seen.kinds[code]
            function.under = {_root(each, of_kernels) for each in seen.under[code]}
            ran.append(function)
    for interpreted in (True, False):
        alike = [each for each in ran if (each.kernel is not None) is interpreted]
        family = Family((each.source, each.node) for each in alike)
        for each in alike:
            each.family = family
    return ran


def _holders(codes: Iterable[CodeType]) -> dict[CodeType, list[FunctionType]]:
    """By code, the functions that have it, also those that the garbage collector was told to leave alone."""
    found: dict[CodeType, list[FunctionType]] = {code: [] for code in codes}
    by_identity = {id(code): each for code, each in found.items()}  # codes of other files may be equal
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    functions = (
        each for each in gc.get_objects() if type(each) is FunctionType
    )  # some answer `isinstance` with a warning
    for each in functions:
        if id(each.__code__) in by_identity:
            by_identity[id(each.__code__)].append(each)
    if frozen:
        gc.freeze()
    return found


def _root(calls: tuple[CodeType, ...], of_kernels: dict[CodeType, FunctionType]) -> str:
    """The kernel under which a call was made; else the outermost function."""
    return next((code.co_name for code in calls if code in of_kernels), calls[0].co_name)


def _found(code: CodeType, kernel: FunctionType | None, functions: list[FunctionType]) -> Ran | None:
    """The function of a code object; None where its file does not hold it as it runs, or where no function object has it."""
    file = Path(code.co_filename)
    source = _source(file)
    placed = None if source is None else _node(source.tree, code)
    if source is None or placed is None:
        return None
    if not _as_written(source, code if kernel is None else kernel.__code__):
        return None
    node, top = placed
    if kernel is not None:
        return Ran(file, source, node, top, kernel=kernel)
    return Ran(file, source, node, top, functions=functions) if functions else None


@cache
def _source(file: Path) -> Source | None:
    try:
        return Source(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None


@cache
def _compiled(source: Source) -> CodeType:
    return compile(source.text, "", "exec", dont_inherit=True)


def _as_written(source: Source, code: CodeType, within: CodeType | None = None) -> bool:
    """Whether a file holds code as it runs: it may have been changed since it was read."""
    within = within or _compiled(source)
    inner = [each for each in within.co_consts if isinstance(each, CodeType)]
    same = (code.co_name, code.co_firstlineno, code.co_code)
    return any(
        (each.co_name, each.co_firstlineno, each.co_code) == same or _as_written(source, code, each) for each in inner
    )


def _node(tree: ast.Module, code: CodeType) -> tuple[ast.FunctionDef, ast.stmt] | None:
    """The definition that a code object was made of, and the statement of the module around it."""
    for top in tree.body:
        for node in ast.walk(top):
            if isinstance(node, ast.FunctionDef) and node.name == code.co_name and code.co_firstlineno in _begins(node):
                return node, top
    return None


def _begins(node: ast.FunctionDef) -> Iterable[int]:
    """Lines that count as the first one: of a decorator, and of the definition itself."""
    return (node.lineno, *(each.lineno for each in node.decorator_list))
