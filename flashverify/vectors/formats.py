"""The two formats of a vector: safetensors, and JSON with every float in hexadecimal, as C99's `%a` writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

__all__ = ["FORMATS", "require_library"]

_NAMES = {
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "int32": "I32",
    "uint8": "U8",
}
"""Dtypes of torch, as safetensors spells them."""


def _as_safetensors(case: str, tensors: dict[str, torch.Tensor]) -> bytes:
    from safetensors.torch import save

    return bytes(save(tensors, metadata={"case": case}))


def _as_json(case: str, tensors: dict[str, torch.Tensor]) -> bytes:
    """One tensor a line: dtype, shape, and its values in row-major order, floats in text, integers as numbers."""
    lines = []
    for name, tensor in tensors.items():
        values = tensor.double().reshape(-1).tolist() if tensor.is_floating_point() else tensor.reshape(-1).tolist()
        entry = {
            "dtype": _NAMES[str(tensor.dtype).removeprefix("torch.")],
            "shape": list(tensor.shape),
            "values": [value.hex() for value in values] if tensor.is_floating_point() else values,
        }
        lines.append(f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}")
    body = ",\n".join(lines)
    return f'{{"schema": "flashverify.vector/1",\n"case": {json.dumps(case)},\n"tensors": {{\n{body}\n}}}}\n'.encode()


FORMATS: dict[str, Callable[[str, dict[str, torch.Tensor]], bytes]] = {
    "safetensors": _as_safetensors,
    "json": _as_json,
}
"""What writes a case and its tensors, by the ending of its files."""


def require_library(names: tuple[str, ...]) -> None:
    """Refuse a format whose library is missing.

    Raises:
        UsageError: it is.
    """
    if "safetensors" in names:
        try:
            import safetensors.torch  # noqa: F401
        except ImportError as error:
            raise UsageError(
                "--format safetensors is not accepted: the library safetensors is missing; "
                "pip install 'flashverify[vectors]', or --format json"
            ) from error
