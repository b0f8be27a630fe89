"""The public surface of the package, and what it may import."""

import ast
import inspect
import sys
from pathlib import Path

import flashverify_oracles

ROOT = Path(inspect.getfile(flashverify_oracles)).parent
ALLOWED = {"torch", "numpy", "mpmath", "flashverify_oracles"}


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_every_public_name_exists_and_the_list_is_sorted() -> None:
    assert flashverify_oracles.__all__ == sorted(flashverify_oracles.__all__)
    for name in flashverify_oracles.__all__:
        assert inspect.getdoc(getattr(flashverify_oracles, name)), name


def test_only_torch_numpy_mpmath_and_the_standard_library_are_imported() -> None:
    files = sorted(ROOT.glob("*.py"))
    assert len(files) >= 4
    for path in files:
        tops = {name.split(".")[0] for name in imports(path)}
        assert tops <= ALLOWED | sys.stdlib_module_names, path.name


def test_the_two_oracles_share_no_code() -> None:
    def own(file: str) -> set[str]:
        """Modules of the package that the file imports."""
        names: set[str] = set()
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "flashverify_oracles":
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flashverify_oracles."):
                names.add((node.module or "").removeprefix("flashverify_oracles."))
        return names

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = {start}
        while ahead:
            name = ahead.pop()
            seen.add(name)
            ahead |= own(f"{name}.py") - seen
        return seen

    float64, exact = reached("float64"), reached("exact")

    assert {"_inputs", "_stream"} <= float64
    assert "_exact_rows" in exact
    assert not float64 & exact
    # Biases and masks are inputs of the oracles, not parts of them.
    assert not {"alibi", "dropout", "relative"} & (float64 | exact)
