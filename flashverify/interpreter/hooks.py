"""Which of Triton's internals the interpreter layer relies on, checked by name and arity before anything is patched.

What is patched lives here and in `session.py`. A file that calls a public part of Triton imports it itself.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.runtime import interpreter as stock

from flashverify.errors import UsageError

__all__ = [
    "InterpreterBuilder",
    "TensorHandle",
    "builder",
    "check_hooks",
    "handle",
    "interpreting",
    "native",
    "stock",
    "tl",
    "triton_root",
]

# Read tolerantly, so that `check_hooks` names whatever a future version has lost.
InterpreterBuilder: Any = getattr(stock, "InterpreterBuilder", object)
TensorHandle: Any = getattr(stock, "TensorHandle", None)
native: Any = getattr(stock, "_interpreter", None)
"""The compiled part of the interpreter: loads, stores and atomics on raw addresses."""

OLDEST = (3, 6)

_MODULE: dict[str, tuple[str, ...] | None] = {
    "ASTTransformer": None,
    "FunctionRewriter": None,
    "InterpreterBuilder": None,
    "InterpretedFunction": None,
    "InterpreterError": None,
    "TensorHandle": ("data", "dtype", "attr"),
    "GridExecutor": ("fn", "arg_names", "grid", "pre_run_hooks"),
    "ReduceOps": ("axis", "combine_fn", "keep_dims"),
    "ScanOps": ("axis", "combine_fn", "reverse"),
    "_get_np_dtype": ("tt_dtype",),
    "_implicit_cvt": ("arg",),
    "_interpreter": None,
    "_ir": None,
    "_patch_lang": ("fn",),
    "interpreter_builder": None,
    "interpreter_semantic": None,
}
"""Names in `triton.runtime.interpreter` and the parameters that they begin with."""

_BUILDER: dict[str, int] = {
    "binary_op": 3,
    "cast_impl": 2,
    "create_addptr": 2,
    "create_ashr": 2,
    "create_atomic_rmw": 6,
    "create_bitcast": 2,
    "create_broadcast": 2,
    "create_cat": 2,
    "create_clampf": 4,
    "create_dot": 5,
    "create_expand_dims": 2,
    "create_fma": 3,
    "create_fp_to_fp": 3,
    "create_fp_to_si": 2,
    "create_fp_to_ui": 2,
    "create_gather": 3,
    "create_get_program_id": 1,
    "create_join": 2,
    "create_lshr": 2,
    "create_make_range": 3,
    "create_masked_load": 4,
    "create_masked_store": 4,
    "create_maxnumf": 2,
    "create_minnumf": 2,
    "create_reshape": 3,
    "create_select": 3,
    "create_splat": 2,
    "create_split": 1,
    "create_trans": 2,
    "set_grid_dim": 3,
    "set_grid_idx": 3,
    "ternary_op": 4,
    "unary_op": 2,
}
"""Methods of the builder and the least number of parameters that they must accept, self not counted."""

_LANGUAGE = (
    "core._unwrap_if_constexpr",
    "core.associative_scan",
    "core.block_type",
    "core.constexpr",
    "core.reduce",
    "core.tensor",
    "core.tensor_descriptor",
    "core.tensor_descriptor_base_type",
    "core.tensor.T",
    "make_block_ptr",
    "make_tensor_descriptor",
    "pointer_type",
    "str_to_ty",
)
_COMBINES = ("_sum_combine", "_elementwise_max", "_elementwise_min")


def builder() -> Any:
    """The one builder of the process. It is captured in many places: its class may be swapped, the object never."""
    return stock.interpreter_builder


def interpreting() -> bool:
    """Whether this process interprets kernels: the switch, and what it was when triton was first imported."""
    function = getattr(stock, "InterpretedFunction", None)
    return bool(triton.knobs.runtime.interpret) and function is not None and isinstance(tl.cdiv, function)


def triton_root() -> str:
    """The folder of Triton's own Python code."""
    return str(Path(triton.__file__).parent)


def _parameters(function: Any) -> list[str]:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []
    return [name for name in names if name != "self"]


def _accepts(function: Any, count: int) -> bool:
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    return len(kinds) - 1 >= count or inspect.Parameter.VAR_POSITIONAL in kinds


def _module_gaps(module: Any) -> list[str]:
    gaps = []
    for name, begin in _MODULE.items():
        found = getattr(module, name, None)
        if found is None:
            gaps.append(name)
        elif begin is not None and tuple(_parameters(found)[: len(begin)]) != begin:
            gaps.append(f"{name}({', '.join(begin)})")
    return gaps


def _builder_gaps(module: Any) -> list[str]:
    gaps = []
    kind = getattr(module, "InterpreterBuilder", object)
    for name, count in _BUILDER.items():
        method = getattr(kind, name, None)
        if method is None:
            gaps.append(f"InterpreterBuilder.{name}")
        elif not _accepts(method, count):
            gaps.append(f"InterpreterBuilder.{name} with {count} arguments")
    held = getattr(module, "TensorHandle", None)
    if list(getattr(held, "__dataclass_fields__", {})) != ["data", "dtype", "attr"]:
        gaps.append("TensorHandle of data, dtype and attr")
    options = getattr(getattr(module, "interpreter_builder", None), "options", None)
    if "sanitize_overflow" not in getattr(options, "__dataclass_fields__", {}):
        gaps.append("InterpreterOptions.sanitize_overflow")
    held_by = {"InterpretedFunction": "rewritten_fn", "FunctionRewriter": "ast_transformer"}
    gaps += [f"{kind}.{name}" for kind, name in held_by.items() if not hasattr(getattr(module, kind, None), name)]
    machine = getattr(module, "_interpreter", None)
    gaps += [f"_interpreter.{name}" for name in ("load", "store", "atomic_rmw") if not hasattr(machine, name)]
    return gaps


def _language_gaps(language: Any) -> list[str]:
    gaps = []
    for path in _LANGUAGE:
        found = language
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is None:
            gaps.append(f"tl.{path}")
    gaps += [f"tl.standard.{name}" for name in _COMBINES if not hasattr(language.standard, name)]
    return gaps


def check_hooks(module: Any = stock, language: Any = tl) -> None:
    """Check that Triton's internals are those that this layer was written for.

    Args:
        module: `triton.runtime.interpreter`.
        language: `triton.language`.

    Raises:
        UsageError: something is missing or takes other arguments; the message names the version and everything missing.
    """
    refused = f"triton {triton.__version__} is not supported by flashverify.interpreter"
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < OLDEST:
        raise UsageError(f"{refused}: it takes {OLDEST[0]}.{OLDEST[1]} and newer ones")
    gaps = _module_gaps(module) + _builder_gaps(module) + _language_gaps(language)
    if gaps:
        raise UsageError(f"{refused}: its interpreter lacks {', '.join(gaps)}")


def handle(data: Any, dtype: Any) -> Any:
    """A `TensorHandle` without the checks of its constructor."""
    made = object.__new__(TensorHandle)
    made.data = data
    made.dtype = dtype
    made.attr = {}
    return made
