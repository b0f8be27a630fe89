"""Python in a document: which blocks are whole programs, and whether what the others take from flashverify is there."""

import ast
import builtins
import importlib
import importlib.util
import inspect
import re
import symtable

import flashverify

NEEDS = re.compile(r"^# needs \S", re.MULTILINE)
"""A comment on a line of its own: the block needs what the reader has, and is compiled only."""
_INNER = ("genexpr", "listcomp", "setcomp", "dictcomp", "lambda")


def why_not_run(text, given=frozenset()):
    """Why a block is no whole program beside the names that it is given; empty where it is one and runs."""
    try:
        ast.parse(text)
    except SyntaxError:
        return "it does not compile"
    if NEEDS.search(text):
        return "it says what it needs"
    missing = sorted(name for name in _imports(text) if importlib.util.find_spec(name) is None)
    if missing:
        return f"it imports {', '.join(missing)}"
    free = sorted(_free(symtable.symtable(text, "block", "exec")) - given)
    return f"it uses {', '.join(free)} of the reader's" if free else ""


def _imports(text):
    """The top-level packages that a block imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def _free(table, known=frozenset()):
    """The names that the top level of a block uses and does not define."""
    own = {
        s.get_name()
        for s in table.get_symbols()
        if s.is_assigned() or s.is_imported() or s.is_parameter() or s.is_namespace()
    }
    known = known | own | set(vars(builtins)) | {"__name__", "__file__"}
    found = {s.get_name() for s in table.get_symbols() if s.is_referenced()} - known
    inner = [child for child in table.get_children() if child.get_type() == "class" or child.get_name() in _INNER]
    return found.union(*(_free(child, known) for child in inner))


def wrong_names(text):
    """What a block imports from flashverify and is not there, and the parameters that its functions do not take."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0].startswith("flashverify"):
            module = importlib.import_module(node.module)
            yield from (f"{node.module}.{a.name}" for a in node.names if not _has(module, a.name))
        elif isinstance(node, ast.Call):
            yield from _wrong_parameters(node)


def _has(module, name):
    return hasattr(module, name) or importlib.util.find_spec(f"{module.__name__}.{name}") is not None


def _wrong_parameters(call):
    name = call.func.id if isinstance(call.func, ast.Name) else None
    if (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "flashverify"
    ):
        name = call.func.attr
    function = getattr(flashverify, name, None) if name in flashverify.__all__ else None
    if function is None:
        return
    parameters = inspect.signature(function).parameters
    taken = set(parameters)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        taken |= set(flashverify.AttentionOptions.__annotations__)
    yield from (f"{name}({k.arg}=)" for k in call.keywords if k.arg is not None and k.arg not in taken)
