"""`oracle` and `assert_attention_close`: the bounds for people who keep their own tests.

Both take tensors of any framework: torch, numpy (with ml_dtypes), or anything that speaks DLPack (JAX, CuPy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.judge.verdict import OutputStats
    from flashverify.numerics import Form

__all__ = ["OracleResult", "assert_attention_close", "oracle"]


@dataclass(frozen=True, slots=True)
class OracleResult:
    """Attention in float64. The gradients are None where no dO was given.

    Attributes:
        o: `[B, Hq, Sq, Dv]`.
        lse: `[B, Hq, Sq]`, natural logarithm; -inf for a row that sees no key.
        delta: `[B, Hq, Sq]`, rowsum(dO * O).
        dq: `[B, Hq, Sq, D]`.
        dk: `[B, Hkv, Sk, D]`, summed over the group of query heads.
        dv: `[B, Hkv, Sk, Dv]`, likewise.
    """

    o: torch.Tensor
    lse: torch.Tensor
    delta: torch.Tensor | None = None
    dq: torch.Tensor | None = None
    dk: torch.Tensor | None = None
    dv: torch.Tensor | None = None


def oracle(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    causal: str | None = None,
    key_lengths: Any = None,
    mask: Any = None,
    do: Any = None,
    dlse: Any = None,
) -> OracleResult:
    """Attention and, where `do` is given, its gradients, in float64.

    Args:
        q: `[B, Hq, Sq, D]`, any float dtype and framework.
        k: `[B, Hkv, Sk, D]`; query head h reads kv head h // (Hq // Hkv).
        v: `[B, Hkv, Sk, Dv]`.
        scale: of the logits; None is 1 / sqrt(D).
        causal: None, `top-left`, or `bottom-right` (aligned to the key lengths where there are any).
        key_lengths: `[B]` integers: keys from there on are padding and may hold anything.
        mask: bool, broadcasts to `[B, Hq, Sq, Sk]`, true where the row sees the key; combined with the others by AND.
        do: `[B, Hq, Sq, Dv]`, the gradient of O.
        dlse: `[B, Hq, Sq]`, the gradient of the natural LSE.

    Returns:
        The values, on the device of `q`.

    Raises:
        UsageError: an argument has the wrong shape, dtype or value.
    """
    from flashverify.truth import float64_values

    inputs, _ = _inputs(q, k, v, do, dlse, scale=scale, causal=causal, key_lengths=key_lengths, mask=mask)
    return OracleResult(**float64_values(inputs))


def assert_attention_close(
    q: Any,
    k: Any,
    v: Any,
    *,
    o: Any = None,
    lse: Any = None,
    do: Any = None,
    dlse: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    scale: float | None = None,
    causal: str | None = None,
    key_lengths: Any = None,
    mask: Any = None,
    lse_base: str = "e",
    form: Form | None = None,
) -> tuple[OutputStats, ...]:
    """Asserts that every element of every given output is within the bound of a correct kernel.

    There is no tolerance to choose: the bound of each element follows from the inputs, the dtype and the numerical form. Given
    O and LSE, the gradients are judged a second time against the oracle that uses that very O and LSE.

        o, lse = my_attention(q, k, v, causal=True)
        assert_attention_close(q, k, v, o=o, lse=lse, causal="top-left")

    Args:
        q: exactly as the kernel saw it, as in `oracle`.
        k: likewise.
        v: likewise.
        o: `[B, Hq, Sq, Dv]` in the dtype of q.
        lse: `[B, Hq, Sq]` fp32, to the base `lse_base`.
        do: the gradient of O that the backward was given.
        dlse: the gradient of the natural LSE, where it was given one.
        dq: shaped as q; needs `do`.
        dk: shaped as k; needs `do`.
        dv: shaped as v; needs `do`.
        scale: as in `oracle`.
        causal: as in `oracle`.
        key_lengths: as in `oracle`.
        mask: as in `oracle`.
        lse_base: `e` or `2`.
        form: the kernel's numerical form; by default the widest one of a kernel that accumulates in fp32.

    Returns:
        For each output how close it came to its bound (ratio = error / bound).

    Raises:
        AssertionError: an element is outside its bound, or non-finite where it must not be; the message names the worst.
        UsageError: an argument has the wrong shape, dtype or value, or there is nothing to judge.
    """
    import torch

    from flashverify.judge.compare import compare_output
    from flashverify.numerics import Form
    from flashverify.truth import Truth

    given = {"o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv}
    outputs = {name: _tensor(name, value) for name, value in given.items() if value is not None}
    if not outputs:
        raise UsageError("nothing to judge: give at least one of o, lse, dq, dk, dv")
    if do is None and outputs.keys() & {"dq", "dk", "dv"}:
        raise UsageError("do=None is not accepted: the gradients dq, dk, dv need the gradient of O")
    if lse_base not in ("e", "2"):
        raise UsageError(f"lse_base={lse_base!r} is not accepted: 'e' or '2'")
    inputs, dtype = _inputs(q, k, v, do, dlse, scale=scale, causal=causal, key_lengths=key_lengths, mask=mask)
    form = _with_base(form or Form(), lse_base)
    truth = Truth(inputs, dtype, form)
    references = {("end-to-end", name): pair for name, pair in truth.forward().items()}
    if do is not None:
        references |= {("end-to-end", name): pair for name, pair in truth.backward().items()}
        stored = (outputs.get("o"), outputs.get("lse"))
        if all(x is not None and bool(torch.isfinite(x[~truth.empty_rows]).all()) for x in stored):
            references |= {("conditional", name): pair for name, pair in truth.conditional(*stored).items()}  # type: ignore[arg-type]
    empty = truth.empty_rows
    pinned = {"o": (empty.unsqueeze(-1), 0.0), "lse": (empty, -math.inf), "dq": (empty.unsqueeze(-1), 0.0)}
    stats, failures = [], []
    for (mode, name), (value, bound) in references.items():
        if name not in outputs:
            continue
        if outputs[name].shape != value.shape:
            raise UsageError(f"{name} of shape {list(outputs[name].shape)} is not accepted: {list(value.shape)}")
        rows, fixed = pinned.get(name, (None, 0.0))
        got = outputs[name].to(value.device)
        comparison = compare_output(name, got, value, bound, mode=mode, pinned=rows, pinned_value=fixed)
        stats.append(comparison.stats)
        failures += [verdict.message for verdict in comparison.verdicts]
    if failures:
        raise AssertionError("attention is outside its bounds:\n  " + "\n  ".join(failures))
    return tuple(stats)


def _with_base(form: Form, base: str) -> Form:
    import dataclasses

    return form if form.lse_base == base else dataclasses.replace(form, lse_base=base)


def _tensor(name: str, value: Any) -> torch.Tensor:
    """Any framework's tensor as a detached torch tensor that shares its memory where possible."""
    import torch
    from torch.utils.dlpack import from_dlpack

    if isinstance(value, torch.Tensor):
        return value.detach()
    if hasattr(value, "__array_interface__"):
        if value.dtype.name == "bfloat16":  # ml_dtypes, which torch reads only by its bits
            return torch.from_numpy(value.view("uint16").copy()).view(torch.bfloat16)
        return torch.from_numpy(value.copy())
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value).detach()
    if isinstance(value, list | tuple):
        return torch.tensor(value)
    raise UsageError(f"{name}={type(value).__name__} is not accepted: a tensor of torch, numpy, or with DLPack")


def _inputs(
    q: Any, k: Any, v: Any, do: Any, dlse: Any, *, scale: float | None, causal: str | None, key_lengths: Any, mask: Any
) -> tuple[Any, str]:
    """The problem as the oracles take it, and the dtype of the kernel."""
    import torch

    from flashverify.truth import Inputs

    q, k, v = (_tensor(name, x) for name, x in (("q", q), ("k", k), ("v", v)))
    names = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise UsageError(f"{name} of shape {list(x.shape)} is not accepted: 4 axes, [batch, heads, sequence, dim]")
        if x.dtype not in names or x.dtype != q.dtype:
            raise UsageError(
                f"{name} of dtype {x.dtype} is not accepted: float16, bfloat16 or float32, the same for q, k, v"
            )
        if x.device != q.device:
            raise UsageError(f"{name} on {x.device} is not accepted: q is on {q.device}")
    (B, Hq, Sq, D), (Bk, Hkv, _Sk, Dk) = q.shape, k.shape
    if Bk != B or Dk != D or v.shape[:3] != k.shape[:3] or Hkv == 0 or Hq % Hkv:
        raise UsageError(
            f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)} do not fit: [B, Hq, Sq, D], [B, Hkv, Sk, D], [B, Hkv, Sk, Dv]"
        )
    if causal not in (None, "top-left", "bottom-right"):
        raise UsageError(f"causal={causal!r} is not accepted: None, 'top-left' or 'bottom-right'")
    visible, k, v = _visibility(q, k, v, causal, key_lengths, mask)
    shapes = {"do": (B, Hq, Sq, v.shape[3]), "dlse": (B, Hq, Sq)}
    extra: dict[str, Any] = {}
    for name, x in (("do", do), ("dlse", dlse)):
        extra[name] = None if x is None else _tensor(name, x).to(q.device)
        if x is not None and tuple(extra[name].shape) != shapes[name]:
            raise UsageError(f"{name} of shape {list(extra[name].shape)} is not accepted: {list(shapes[name])}")
    for name, x in (("q", q), ("k", k), ("v", v), *extra.items()):
        if x is not None and not bool(torch.isfinite(x).all()):
            raise UsageError(
                f"{name} holds a non-finite value inside the declared lengths, where no exact value exists"
            )
    value = 1.0 / math.sqrt(D) if scale is None else float(scale)
    return Inputs(q=q, k=k, v=v, scale=value, visible=visible, **extra), names[q.dtype]


def _visibility(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: str | None, key_lengths: Any, mask: Any
) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """The mask as one bool tensor, or None, and k and v with their padding set to 0."""
    import torch

    rows = torch.arange(q.shape[2], device=q.device).view(-1, 1)
    keys = torch.arange(k.shape[2], device=q.device).view(1, -1)
    visible, lengths = None, torch.full((q.shape[0], 1, 1, 1), k.shape[2], device=q.device)
    if key_lengths is not None:
        lengths = _tensor("key_lengths", key_lengths).to(q.device).view(-1, 1, 1, 1)
        if (
            lengths.shape[0] != q.shape[0]
            or lengths.dtype.is_floating_point
            or bool(((lengths < 0) | (lengths > k.shape[2])).any())
        ):
            raise UsageError(
                f"key_lengths={key_lengths!r} is not accepted: {q.shape[0]} integers from 0 to {k.shape[2]}"
            )
        visible = keys < lengths
        inside = visible.view(q.shape[0], 1, -1, 1)
        k, v = torch.where(inside, k, 0.0), torch.where(inside, v, 0.0)
    if causal is not None:
        shift = lengths - q.shape[2] if causal == "bottom-right" else 0
        below = keys <= rows + shift
        visible = below if visible is None else visible & below
    if mask is not None:
        extra = _tensor("mask", mask).to(q.device)
        if extra.dtype != torch.bool:
            raise UsageError(f"mask of dtype {extra.dtype} is not accepted: bool, true where the row sees the key")
        visible = extra if visible is None else visible & extra
    return visible, k, v
