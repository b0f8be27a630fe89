"""What only a bench has: FlexAttention with its mask made beforehand, and Triton's tutorial from a file."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.subjects.function import FunctionSubject

__all__ = ["FLEX", "TUTORIAL", "flex_attention", "sha256_of", "triton_tutorial"]

FLEX = "flex-attention"
TUTORIAL = "tutorial"


def flex_attention(device: str) -> FunctionSubject:
    """Torch's FlexAttention as it is used for speed: compiled for the shape, its block mask made once; O alone.

    Args:
        device: `cpu` or `cuda`; gradients on the latter alone.
    """
    import torch
    import torch._functorch.config
    from torch.nn.attention import flex_attention as torchs

    from flashverify.subjects.function import subject
    from flashverify.subjects.interface import Contract, Supports

    functorch: Any = torch._functorch.config
    compiled: Any = torch.compile(torchs.flex_attention, dynamic=False)

    @functools.lru_cache(maxsize=4)
    def causal(rows: int, keys: int) -> Any:
        return torchs.create_block_mask(
            lambda _b, _h, i, j: i + keys - rows >= j, None, None, rows, keys, device=device
        )

    @subject(
        name=FLEX,
        device=device,
        supports=Supports(masks=("causal",), backward=device == "cuda", compiles=True),
        contract=Contract(lse_base=None),
    )
    def call(p: Problem) -> Any:
        mask = None if p.causal is None else causal(p.case.seq_q, p.case.seq_k)
        grouped = p.case.heads_q != p.case.heads_kv
        with functorch.patch(donated_buffer=False):  # so that the backward of a forward can be timed again and again
            return compiled(p.q, p.k, p.v, block_mask=mask, scale=p.scale, enable_gqa=grouped)

    return call


def triton_tutorial(file: str) -> FunctionSubject:
    """`attention` of Triton's tutorial 06, python/tutorials/06-fused-attention.py of its sources, tuned at its first call of a shape.

    A backward without a mask is refused where the file's own is causal always, as it was until its kernel took an argument `CAUSAL`.

    Raises:
        UsageError: `file` is no readable Python file, or has no `attention`.
    """
    from flashverify.adapters import triton_tutorial as adapted
    from flashverify.subjects.files import module_of_file

    path = Path(file).absolute()
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(
            f"--tutorial={file!r} is not accepted: a Python file, 06-fused-attention.py of Triton's tutorials"
        )
    module = module_of_file(path)
    attention = getattr(module, "attention", None)
    if attention is None:
        raise UsageError(
            f"--tutorial={file!r} is not accepted: it defines no `attention`, as 06-fused-attention.py does"
        )
    backward = getattr(module, "_attn_bwd", None)
    always_causal = backward is not None and "CAUSAL" not in backward.arg_names

    def refusal(case: Case) -> str | None:
        refused = always_causal and case.grad.backward and case.mask.causal is None
        return "the backward of this tutorial is causal always" if refused else None

    return adapted(attention, name=TUTORIAL, device="cuda", also=refusal)


def sha256_of(file: str) -> str:
    """The file's hash, by which a record names what was timed."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
