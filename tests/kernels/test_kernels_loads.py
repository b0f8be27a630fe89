"""Every masked load of the kernels' source has a fill; what compilers make of them is read by the files named `compile`."""

import ast
from pathlib import Path

import flashverify_kernels

SOURCE = Path(flashverify_kernels.__file__).parent


def loads():
    """File and line, positional arguments and keywords of each call of a `load`."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
                yield f"{path.name}:{node.lineno}", len(node.args), {keyword.arg for keyword in node.keywords}


def test_a_load_with_a_mask_has_a_fill():
    found = list(loads())

    assert len(found) > 50
    masked = [(where, count, words) for where, count, words in found if count > 1 or "mask" in words]
    assert len(masked) > 30
    assert [where for where, count, words in masked if count < 3 and "other" not in words] == []
