"""The direction of imports: downward only, as ARCHITECTURE.md draws it."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Lowest first. A module may import its own layer's package and every layer below it.
LAYERS = (
    {
        *("flashverify.child_process", "flashverify.errors", "flashverify.formats", "flashverify.outputs"),
        *("flashverify.source_text", "flashverify.sparse_memory", "flashverify.starvation"),
    },
    {"flashverify.launching"},
    {"flashverify.case", "flashverify.numerics", "flashverify.interpreter"},
    {"flashverify.subjects", "flashverify.truth"},
    {"flashverify.adapters", "flashverify.judge"},
    {"flashverify.baseline"},
    {"flashverify.xray"},
    {"flashverify.checks"},
    {"flashverify.diagnosis"},
    {"flashverify.repair"},
    {"flashverify.bench", "flashverify.campaign", "flashverify.compiling", "flashverify.mutants"},
    {"flashverify.report", "flashverify.api", "flashverify.describe"},
    {"flashverify.ci"},
    {
        *("flashverify.comparing", "flashverify.gallery", "flashverify.probing", "flashverify.training"),
        "flashverify.vectors",
    },
    {"flashverify.cli", "flashverify.__main__", "flashverify.pytest_plugin"},
)
# What a package may take from another one of its own layer: nothing, but for these.
SAME_LAYER = {("flashverify.__main__", "flashverify.cli"), ("flashverify.mutants", "flashverify.campaign")}
OUTSIDE = {
    "flashverify_kernels": {"torch", "triton", "flashverify_kernels"},
    "flashverify_oracles": {"torch", "numpy", "mpmath", "flashverify_oracles"},
}
ONLY_IMPORTER = {"flashverify_oracles": {"flashverify.truth"}, "flashverify_kernels": {"flashverify.subjects"}}


def modules() -> list[tuple[str, Path]]:
    roots = (ROOT / "flashverify", ROOT / "kernels/flashverify_kernels", ROOT / "oracles/flashverify_oracles")
    found = []
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            found.append((".".join(p for p in parts if p != "__init__"), path))
    return found


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


def layer(module: str) -> int | None:
    if module == "flashverify":
        return len(LAYERS)  # the public face may import everything below it
    return next(
        (n for n, packages in enumerate(LAYERS) if any(module == p or module.startswith(p + ".") for p in packages)),
        None,
    )


def package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def violations(module: str, imported: set[str]) -> list[str]:
    found = []
    for name in imported:
        top = name.split(".")[0]
        if top == "flashverify" and module.startswith("flashverify."):
            mine, theirs = layer(module), layer(name)
            assert mine is not None, f"{module} belongs to no layer"
            assert theirs is not None, f"{name} belongs to no layer"
            pair = (package(module), package(name))
            if theirs >= mine and pair[0] != pair[1] and pair not in SAME_LAYER:
                found.append(f"{module} imports {name}, which is not below it")
        for target, allowed in ONLY_IMPORTER.items():
            if top == target and not module.startswith(target) and not any(module.startswith(a) for a in allowed):
                found.append(f"{module} imports {name}; only {sorted(allowed)} may")
        allowed_tops = OUTSIDE.get(module.split(".")[0])
        if allowed_tops is not None and top not in allowed_tops and top not in sys.stdlib_module_names:
            found.append(f"{module} imports {name}; it may use {sorted(allowed_tops)}")
    return found


def test_imports_run_downward():
    found = modules()

    assert len(found) > 300
    assert [line for module, path in found for line in violations(module, imports(path))] == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("flashverify.case.case", "flashverify.campaign.store.writer"),
        ("flashverify.numerics.forward", "flashverify.judge.compare"),
        ("flashverify.checks.accuracy", "flashverify_oracles.float64"),
        ("flashverify.judge.compare", "flashverify_kernels"),
        ("flashverify_oracles.float64", "triton"),
        ("flashverify_oracles.exact", "flashverify.case"),
        ("flashverify_kernels.api", "flashverify"),
    ],
)
def test_an_upward_import_is_found(module, imported):
    assert violations(module, {imported})


@pytest.mark.parametrize("argument", ["--help", "list"])
def test_commands_that_need_no_torch_start_without_it(argument):
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from flashverify.cli import main\n"
        f"result = CliRunner().invoke(main, [{argument!r}])\n"
        "assert result.exit_code == 0, result.output\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.skipif(not os.access(ROOT, os.W_OK), reason="nothing can be written to the checkout")
@pytest.mark.parametrize("name", ["flashverify.case.case", "flashverify_kernels.launch", "flashverify_oracles.float64"])
def test_processes_of_tests_find_the_harness_compiled(name):
    assert Path(importlib.util.cache_from_source(importlib.util.find_spec(name).origin)).exists()
