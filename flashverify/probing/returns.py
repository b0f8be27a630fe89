"""The layouts in which O and the LSE may come back, and the two that the harness takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.probing.answers import Returned

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["ADVICE", "brought_back", "layout_of"]

ADVICE = {
    "bshd": "o.transpose(1, 2)",
    "hsd": "o[None]",
    "shd": "o.transpose(0, 1)[None]",
    "bsh": "lse.transpose(1, 2)",
    "hs": "lse[None]",
    "sh": "lse.transpose(0, 1)[None]",
    "bhs1": "lse.squeeze(-1)",
    "(bh)s": "lse.view(*p.q.shape[:3])",
}
"""What to return in place of an output of these axes."""


def layout_of(name: str, shape: tuple[int, ...], case: Case) -> str:
    """The axes of an output, `bhsd` and `bhs` where the shape allows them; empty where it is none of them.

    Args:
        name: `o` or `lse`.
        shape: of the tensor.
        case: that it is the output of.
    """
    b, h, s, d = case.shape_o
    known: dict[str, tuple[int, ...]] = (
        {"bhsd": (b, h, s, d), "bshd": (b, s, h, d)}
        if name == "o"
        else {"bhs": (b, h, s), "bsh": (b, s, h), "bhs1": (b, h, s, 1), "(bh)s": (b * h, s)}
    )
    if b == 1:
        known |= {"hsd": (h, s, d), "shd": (s, h, d)} if name == "o" else {"hs": (h, s), "sh": (s, h)}
    return next((axes for axes, each in known.items() if each == tuple(shape)), "")


def brought_back(name: str, tensor: torch.Tensor, case: Case, dtype: torch.dtype) -> tuple[torch.Tensor, Returned]:
    """An output as the harness takes it, `[B, Hq, Sq, Dv]` or `[B, Hq, Sq]` in `dtype`, and how it came back.

    A tensor of an unknown shape stays what it is.
    """
    axes = layout_of(name, tuple(tensor.shape), case)
    returned = Returned(axes=axes, shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
    if axes in ("bshd", "bsh"):
        tensor = tensor.transpose(1, 2)
    elif axes in ("shd", "sh"):
        tensor = tensor.transpose(0, 1)[None]
    elif axes in ("hsd", "hs"):
        tensor = tensor[None]
    elif axes == "bhs1":
        tensor = tensor.squeeze(-1)
    elif axes == "(bh)s":
        tensor = tensor.reshape(case.shape_o[:3])
    return tensor if tensor.dtype == dtype else tensor.to(dtype), returned
