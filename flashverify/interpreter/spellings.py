"""What Triton's language was called in earlier releases, and what to write instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import triton

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["advised"]

_LIBDEVICE = "`from triton.language.extra import libdevice`"
_DESCRIPTOR = "a descriptor of `tl.make_tensor_descriptor`, with its methods load and store"
_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"dot\(\) got an unexpected keyword argument '(trans_a)'",
        "write tl.dot(tl.trans(a), b) for tl.dot(a, b, trans_a=True)",
    ),
    (
        r"dot\(\) got an unexpected keyword argument '(trans_b)'",
        "write tl.dot(a, tl.trans(b)) for tl.dot(a, b, trans_b=True)",
    ),
    (r"dot\(\) got an unexpected keyword argument '(allow_tf32)'", "write input_precision='tf32' or 'ieee'"),
    (
        r"module 'triton.language' has no attribute '(libdevice)'",
        f"write {_LIBDEVICE} and libdevice.NAME for tl.libdevice.NAME",
    ),
    (
        r"module 'triton.language.math' has no attribute '(\w+)'",
        f"write {_LIBDEVICE} and libdevice.\\1 for tl.math.\\1",
    ),
    (
        r"(Did you forget to add @triton.jit)",
        "import its file inside the corrected interpreter: a function of libdevice got a name before",
    ),
    (r"module 'triton.language' has no attribute '(_experimental_\w*descriptor\w*)'", f"take {_DESCRIPTOR}"),
    (r"module 'triton.language' has no attribute '(\w+)'", "this name is gone, or belongs to another release"),
    (
        r"module 'triton.language.extra(?:\.cuda)?' has no attribute '(\w+)'",
        "this name is gone, or belongs to another release",
    ),
    (r"module 'triton' has no attribute '(\w+)'", "this name is gone, or belongs to another release"),
)
"""What an exception of a kernel says, and what helps."""


def advised(error: BaseException) -> str:
    """The text of a kernel's exception, behind what to change where it is of an old spelling.

    Args:
        error: out of the kernel.
    """
    text = repr(error)
    for advice in _found(text, _ADVICE):
        return f"Triton {triton.__version__} has not what this kernel was written for: {advice} ({text})"
    return text


def _found(text: str, table: Iterable[tuple[str, str]]) -> Iterable[str]:
    for pattern, advice in table:
        match = re.search(pattern, text.replace("\\", ""))
        if match is not None:
            yield match.expand(advice)
