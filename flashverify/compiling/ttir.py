"""Hazards in Triton's intermediate code, read from its text.

| kind | what is looked for | why |
|---|---|---|
| `unfilled-load` | a masked load without a fill, or a boundary check without padding | the masked lanes are undefined |
| `int32-offset` | a product of two runtime values in 32 bits, one of them from an argument, that is added to a pointer | overflows for a large tensor |
| `atomic` | an atomic whose outcome depends on the order, in a kernel whose contract promises equal bits | order varies |

An offset is followed from `tt.addptr` through additions, conversions, shape changes and products with constants; a 64-bit
product ends the search, for its factors are indices. Ranges count as constants.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from flashverify.compiling.declared import is_declared
from flashverify.compiling.locations import LOCATION, locations_of, where
from flashverify.compiling.records import Hazard

__all__ = ["find_hazards"]

_OPERATION = re.compile(r"^\s*(?:(%[\w$.-]+)(?::\d+)?\s*=\s*)?\"?([a-z_]+\.[\w.]+)\"?(.*)$")
_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_ARGUMENT = re.compile(r"(%[\w$.-]+): (i\d+|!?[\w.<>]+)")
_CARRIED = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)")
_TRANSPARENT = {
    "arith.addi",
    "arith.subi",
    "arith.extsi",
    "arith.extui",
    "arith.trunci",
    "arith.select",
    "tt.splat",
    "tt.broadcast",
    "tt.expand_dims",
    "tt.reshape",
    "tt.trans",
}
_ORDERED = {"fadd", "exch"}


@dataclass(slots=True)
class _Operation:
    name: str
    operands: list[str]
    text: str
    line: str


@dataclass(slots=True)
class _Function:
    definitions: dict[str, _Operation] = field(default_factory=dict)
    operations: list[tuple[str | None, _Operation]] = field(default_factory=list)
    integers: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)


def find_hazards(ttir: str, *, deterministic: bool) -> tuple[Hazard, ...]:
    """The hazards of one module, each place once; without those that their source line declares.

    Args:
        ttir: text of the module, with its locations.
        deterministic: whether the contract promises equal bits.
    """
    locations = locations_of(ttir)
    found = set()
    for function in _functions(ttir):
        for result, operation in function.operations:
            kinds = [_unfilled(operation), _atomic(operation, function, result) if deterministic else None]
            for kind, what in filter(None, kinds):
                found.add(Hazard(kind=kind, where=where(operation.line, locations), what=what))
            if operation.name == "tt.addptr":
                for product in _products(operation.operands[1], function):
                    what = "a product of two runtime values in 32 bits is an offset: it overflows for a large tensor"
                    found.add(Hazard(kind="int32-offset", where=where(product.line, locations), what=what))
    return tuple(sorted(hazard for hazard in found if not is_declared(hazard.kind, hazard.where)))


def _functions(ttir: str) -> list[_Function]:
    found: list[_Function] = []
    for line in ttir.splitlines():
        if "tt.func" in line:
            found.append(_Function(integers={name for name, kind in _ARGUMENT.findall(line) if kind.startswith("i")}))
            continue
        match = _OPERATION.match(line)
        if match is None or not found:
            continue
        result, name, rest = match.groups()
        function = found[-1]
        body = LOCATION.sub("", rest)
        operation = _Operation(name, _NAME.findall(body.split(" : ")[0]), body, line)
        if name.startswith("scf.") and "iter_args(" in body:
            function.aliases.update(_CARRIED.findall(body.split("iter_args(")[1].split(")")[0]))
        if result is not None:
            function.definitions[result] = operation
        function.operations.append((result, operation))
        for operand in operation.operands:
            function.uses[operand] = function.uses.get(operand, 0) + 1
    return found


def _unfilled(operation: _Operation) -> tuple[str, str] | None:
    if operation.name != "tt.load":
        return None
    checked = re.search(r"boundaryCheck = array<i32: ", operation.text) and "padding" not in operation.text
    if len(operation.operands) == 2 or checked:
        return "unfilled-load", "masked lanes have no fill: their values are undefined"
    return None


def _atomic(operation: _Operation, function: _Function, result: str | None) -> tuple[str, str] | None:
    if not operation.name.startswith("tt.atomic"):
        return None
    words = re.findall(r"\b[a-z]+\b", operation.text)
    ordered = operation.name == "tt.atomic_cas" or bool(_ORDERED & set(words))
    if ordered or (result is not None and function.uses.get(result)):
        return "atomic", "the outcome depends on the order of programs; the contract promises equal bits"
    return None


def _products(start: str, function: _Function) -> list[_Operation]:
    """The 32-bit products of runtime values that the offset `start` is a sum of."""
    found, todo, seen = [], [start], set()
    while todo:
        name = function.aliases.get(todo[-1], todo[-1])
        todo.pop()
        operation = function.definitions.get(name)
        if name in seen or operation is None:
            continue
        seen.add(name)
        if operation.name in _TRANSPARENT:
            todo += operation.operands
        elif operation.name == "arith.muli" and re.search(r"\b(?:\d+x)*i32\b", operation.text.split(" : ")[-1]):
            runtime = [x for x in operation.operands if not _constant(x, function)]
            if len(runtime) == 2 and any(_from_argument(x, function) for x in runtime):
                found.append(operation)
            else:
                todo += runtime
    return found


def _slice(start: str, function: _Function) -> set[str]:
    """Every name that `start` is computed from."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        name = function.aliases.get(name, name)
        if name in seen:
            continue
        seen.add(name)
        if name in function.definitions:
            todo += function.definitions[name].operands
    return seen


def _constant(start: str, function: _Function) -> bool:
    leaves = (function.definitions.get(name) for name in _slice(start, function))
    varying = ("tt.load", "tt.get_program_id", "tt.get_num_programs", "tt.atomic", "scf.")
    return all(operation is not None and not operation.name.startswith(varying) for operation in leaves)


def _from_argument(start: str, function: _Function) -> bool:
    return bool(_slice(start, function) & function.integers)
