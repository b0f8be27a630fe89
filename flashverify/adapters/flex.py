"""torch's FlexAttention, or a function that is called as it is: masks by a block mask or a score_mod, eager or compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.adapters.declaration import Changes, accepts, declare, first_two, has_parameter
from flashverify.adapters.flex_blocks import create, from_blocks
from flashverify.adapters.flex_mods import mask_mod_of, score_mod_of
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.adapters.declaration import FormLike
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject

__all__ = ["flex_attention"]

_WAYS = ("block_mask", "score_mod")
_CREATED = 32
"""One seed in so many has its block masks by `create_block_mask`; those of the others are the same, out of lists of blocks."""


def flex_attention(
    kernel: Callable[..., Any] | None = None,
    *,
    compiled: bool = False,
    masked_by: str = "block_mask",
    block_size: int = 128,
    name: str | None = None,
    device: str = "auto",
    form: FormLike = None,
    contract: Mapping[str, Any] | None = None,
    **supports: Any,
) -> FunctionSubject:
    """A subject that calls FlexAttention; gradients by autograd, on a GPU alone.

    The mask and the modifiers of a case are a `mask_mod` and a `score_mod`, which look positions up in captured tensors. What lies
    behind the last packed sequence is cut off beforehand: a mask does not keep its NaN out. Key lengths are not declared for that reason.

    Args:
        kernel: takes (q, k, v, score_mod=, block_mask=, scale=, enable_gqa=, return_aux= or return_lse=); torch's own by default. What
            `torch.compile` made is one too.
        compiled: `torch.compile(kernel, dynamic=True)` is what is called; on the CPU without an LSE, which torch does not compile there.
        masked_by: `block_mask` gives the mask as a block mask; `score_mod` gives none, and hidden logits are -inf.
        block_size: of the block mask.
        name: in reports; that of the kernel by default.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form; by default the widest one, with as many splits of the keys as torch may make for few rows.
        contract: fields of `Contract` to replace; with `lse_base=None` no LSE is asked for.
        **supports: fields of `Supports` to replace.

    Raises:
        UsageError: an argument is not accepted.
    """
    import torch
    from torch.nn.attention.flex_attention import flex_attention as torchs

    if masked_by not in _WAYS:
        raise UsageError(f"masked_by={masked_by!r} is not accepted: one of {', '.join(_WAYS)}")
    given: Callable[..., Any] = torchs if kernel is None else kernel  # type: ignore[assignment]
    call: Callable[..., Any] = _compiled(given, whole=given is torchs) if compiled else given
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    names = [n for n in ("return_aux", "return_lse") if has_parameter(given, n)]
    wanted = "return_aux" if "return_aux" in names else "return_lse" if names or accepts(given, "return_lse") else None
    without = compiled and where == "cpu"
    if without or (contract is not None and contract.get("lse_base", "e") is None):
        wanted = None
    declared = {
        "masks": ("causal", "window", "prefix_lengths", "packed", "bitmap", "blocks"),
        "window_alignments": ("top-left", "bottom-right"),
        "logits": ("softcap", "alibi", "bias"),
        "backward": where == "cuda",
        "compiles": compiled,
        "traced": compiled,
        "also": _refusal,
    }
    changes = Changes(name=name, device=device, form=form, contract=contract, supports=supports)
    return declare(
        lambda p: _call(p, call, wanted, masked_by, block_size),
        given,
        changes,
        supports=declared | ({"dim_multiple": 16, "unaligned": False} if compiled and where == "cuda" else {}),
        contract={} if wanted else {"lse_base": None},
        form=lambda case: _form(case, few_rows=compiled and where == "cuda"),
    )


def _compiled(kernel: Callable[..., Any], *, whole: bool) -> Callable[..., Any]:
    """A compiled function. As a `whole` it raises where torch would otherwise run it uncompiled, without a word."""
    import torch

    return torch.compile(kernel, dynamic=True, fullgraph=whole)


def _call(p: Problem, kernel: Callable[..., Any], wanted: str | None, masked_by: str, block_size: int) -> Any:
    import torch

    packed, case = p.case.mask.packed, p.case
    rows, keys = (case.seq_q, case.seq_k) if packed is None else (packed.cu_q[-1], packed.cu_k[-1])
    q, k, v = p.q, p.k, p.v
    if packed is not None:
        # Without an axis of the one sequence its stride says nothing: that is the same whatever is cut off then.
        q, k, v = (x[0, :, :most].unsqueeze(0) for x, most in ((q, rows), (k, keys), (v, keys)))
    mask, score = mask_mod_of(p), score_mod_of(p)
    block_mask = None
    if mask is not None and masked_by == "block_mask":
        made = create if case.values.seed % _CREATED == 0 else from_blocks
        block_mask = made(mask, (case.batch, case.heads_q, rows, keys), q.device, block_size)
    elif mask is not None:
        score = _hiding(mask, score)
    asked: dict[str, Any] = {} if wanted is None else {wanted: True}
    if wanted == "return_aux":
        from torch.nn.attention.flex_attention import AuxRequest

        asked = {wanted: AuxRequest(lse=True)}
    grouped = case.heads_q != case.heads_kv
    o, aux = first_two(
        kernel(q, k, v, score_mod=score, block_mask=block_mask, scale=p.scale, enable_gqa=grouped, **asked)
    )
    rest = case.seq_q - rows
    o = torch.nn.functional.pad(o, (0, 0, 0, rest)) if rest else o
    if wanted is None:
        return o
    lse = aux.lse if wanted == "return_aux" else aux
    return o, torch.nn.functional.pad(lse, (0, rest), value=float("-inf")) if rest else lse


def _hiding(mask: Callable[..., Any], score: Callable[..., Any] | None) -> Callable[..., Any]:
    """A score_mod that applies both."""
    import torch

    def mod(s: torch.Tensor, b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        return torch.where(mask(b, h, i, j), s if score is None else score(s, b, h, i, j), float("-inf"))

    return mod


def _form(case: Case, *, few_rows: bool) -> Form:
    """Compiled for a GPU, few rows are computed in splits of the keys: two programs for each multiprocessor at most."""
    from flashverify.numerics.form import Form

    splits = 1
    if few_rows and case.seq_q < 128:
        import torch

        count = torch.cuda.get_device_properties(0).multi_processor_count if torch.cuda.is_available() else 132
        splits = max(1, 2 * count // max(1, case.batch * case.heads_kv))
    return Form(dot=case.precision, n_splits=splits, softcap="tanh")


def _refusal(case: Case) -> str | None:
    packed = case.mask.packed
    if packed is not None and 0 in (packed.cu_q[-1], packed.cu_k[-1]):
        return "packed sequences without a row or without a key: nothing is left to call it with"
    return None
