"""The arguments of `oracle` and `assert_attention_close` as a problem of the harness, validated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flashverify.api.layouts import AXES, check_layout, fits, fitting_layouts, to_bhsd
from flashverify.api.options import value_of
from flashverify.api.selection import both_of, selected
from flashverify.api.tensors import as_integers, as_tensor, as_trees, expanded, require_shape
from flashverify.case.case import Case, Grad, Logits
from flashverify.case.masks.mask import PARTS, Mask, Packed
from flashverify.case.masks.part import LengthsPart
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.api.options import AttentionOptions
    from flashverify.case.problem import Problem
    from flashverify.truth import Inputs

__all__ = ["Arguments", "read_arguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What the caller gave, `[B, H, S, D]`.

    Attributes:
        problem: tensors and masks; of dropout and of a dense mask only `inputs` knows.
        inputs: the problem as the oracles take it.
        layout: of the caller's tensors.
        shapes: of the caller's tensors with a head axis, by name, as they were given.
    """

    problem: Problem
    inputs: Inputs
    layout: str
    shapes: dict[str, tuple[int, ...]]


def read_arguments(q: Any, k: Any, v: Any, options: AttentionOptions) -> Arguments:
    """The problem that the arguments describe.

    Args:
        q: as in `oracle`.
        k: likewise.
        v: likewise.
        options: likewise.

    Raises:
        UsageError: an argument has the wrong shape, dtype or value, or two of them contradict each other.
    """
    import torch

    from flashverify.case.problem import Problem
    from flashverify.truth import inputs_of

    layout = value_of(options, "layout")
    check_layout(layout)
    given = {name: as_tensor(name, x) for name, x in (("q", q), ("k", k), ("v", v))}
    shapes = {name: tuple(x.shape) for name, x in given.items()}
    dtype = _check_inputs(given, layout)
    q, k, v = (to_bhsd(name, x, layout) for name, x in given.items())
    device = q.device
    case = _case(q, k, v, dtype, options)
    gradients = _gradients(case, options, layout, shapes, device)
    modifiers = _modifiers(case, options, device)
    for name, tensor, inside in (
        *(("q", q, case.rows_inside), ("k", k, case.keys_inside), ("v", v, case.keys_inside)),
        *((name, tensor, case.rows_inside) for name, tensor in gradients.items() if tensor is not None),
    ):
        _require_finite(name, tensor, inside)
    problem = Problem(
        case=case,
        q=q,
        k=k,
        v=v,
        key_lengths=None,
        do=gradients["do"],
        dlse=gradients["dlse"],
        **modifiers,
    )
    inputs, _ = inputs_of(problem)
    return Arguments(
        problem=problem, inputs=_with_pairs(inputs, case, options, torch.device(device)), layout=layout, shapes=shapes
    )


def _check_inputs(given: dict[str, torch.Tensor], layout: str) -> str:
    """The dtype of q, k and v by its short name, after a look at their axes, dtypes, devices and shapes."""
    import torch

    names = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    shapes = {name: tuple(x.shape) for name, x in given.items()}
    axes = AXES[layout].count(",") + 1
    for name, x in given.items():
        if x.dim() != axes:
            wanted = f"{axes} axes, {AXES[layout]}{_hint(shapes, layout)}"
            raise UsageError(f"{name} of shape {list(x.shape)} is not accepted: {wanted}")
        if x.dtype not in names or x.dtype != given["q"].dtype:
            accepted = "float16, bfloat16 or float32, the same for q, k, v"
            raise UsageError(f"{name} of dtype {x.dtype} is not accepted: {accepted}")
        if x.device != given["q"].device:
            raise UsageError(f"{name} on {x.device} is not accepted: q is on {given['q'].device}")
    if not fits(shapes["q"], shapes["k"], shapes["v"], layout):
        found = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise UsageError(
            f"{found} do not fit layout={layout!r}, {AXES[layout]}: one batch, one dim of q and k, as many keys as values, and query "
            f"heads in groups of equal size over the kv heads{_hint(shapes, layout)}"
        )
    return names[given["q"].dtype]


def _hint(shapes: dict[str, tuple[int, ...]], layout: str) -> str:
    others = fitting_layouts(shapes, layout)
    return "".join(f"; they fit layout={other!r}, {AXES[other]}" for other in others)


def _case(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtype: str, options: AttentionOptions) -> Case:
    """Sizes and masks as a case, whose rules they must keep."""
    option = {name: value_of(options, name) for name in ("causal", "window", "scale", "softcap", "do", "dlse")}
    cu_q, cu_k = (as_integers(name, value_of(options, name)) for name in ("cu_q", "cu_k"))
    tree = as_trees("tree", value_of(options, "tree"))
    parts = (part.name for part in PARTS if isinstance(part, LengthsPart))
    lengths: dict[str, Any] = {name: as_integers(name, value_of(options, name)) for name in parts}
    if (cu_q is None) != (cu_k is None):
        name = "cu_q" if cu_q is None else "cu_k"
        raise UsageError(f"{name}=None is not accepted: cu_q and cu_k belong together")
    window = option["window"]
    if window is not None and not (isinstance(window, tuple | list) and len(window) == 2):
        raise UsageError(f"window={window!r} is not accepted: None or (left, right)")
    packed = None if cu_q is None or cu_k is None else Packed(cu_q, cu_k)
    window = None if window is None else tuple(window)
    return Case(
        batch=q.shape[0],
        heads_q=q.shape[1],
        heads_kv=k.shape[1],
        seq_q=q.shape[2],
        seq_k=k.shape[2],
        dim_qk=q.shape[3],
        dim_v=v.shape[3],
        dtype=dtype,
        scale=None if option["scale"] is None else float(option["scale"]),
        mask=Mask(
            causal=option["causal"],
            window=window,
            packed=packed,
            tree=tree,
            **lengths,
        ),
        logits=Logits(softcap=float(option["softcap"]) if option["softcap"] else None),
        grad=Grad(backward=option["do"] is not None or option["dlse"] is not None, dlse=option["dlse"] is not None),
    )


def _gradients(
    case: Case, options: AttentionOptions, layout: str, shapes: dict[str, tuple[int, ...]], device: torch.device
) -> dict[str, torch.Tensor | None]:
    """The incoming gradients; zeros for a dO that is missing beside a dLSE."""
    import torch

    found: dict[str, torch.Tensor | None] = {"do": None, "dlse": None}
    for name, shape in (("do", case.shape_o), ("dlse", case.shape_o[:3])):
        if (value := value_of(options, name)) is not None:
            tensor = as_tensor(name, value).to(device)
            shapes[name] = tuple(tensor.shape)
            found[name] = to_bhsd(name, tensor, layout)
            require_shape(name, found[name], shape, _hint(shapes, layout))  # type: ignore[arg-type]
    if found["do"] is None and found["dlse"] is not None:
        found["do"] = torch.zeros(case.shape_o, dtype=torch.float32, device=device)
    return found


def _modifiers(case: Case, options: AttentionOptions, device: torch.device) -> dict[str, Any]:
    """Bias, slopes, sinks and a relative bias where there are any."""
    import torch

    found: dict[str, Any] = {}
    options_of = {"bias": "bias", "slopes": "alibi_slopes", "sink": "sink", "relative_bias": "relative_bias"}
    for name, option in options_of.items():
        if (value := value_of(options, option)) is None:
            continue
        tensor = as_tensor(option, value).to(device)
        if not tensor.dtype.is_floating_point:
            raise UsageError(f"{option} of dtype {tensor.dtype} is not accepted: a floating one")
        if name == "bias":
            b, h, rows, keys = case.batch, case.heads_q, case.seq_q, case.seq_k
            accepted = [(first, second, rows, keys) for first in (b, 1) for second in (h, 1)]
            if tuple(tensor.shape) not in accepted:
                text = f"[{b} or 1, {h} or 1, {rows}, {keys}]"
                raise UsageError(f"bias of shape {list(tensor.shape)} is not accepted: {text}")
        elif name == "relative_bias":
            if tensor.dim() != 2 or tensor.shape[0] != case.heads_q:
                text = f"[{case.heads_q}, buckets]"
                raise UsageError(f"relative_bias of shape {list(tensor.shape)} is not accepted: {text}")
        else:
            require_shape(option, tensor, (case.heads_q,))
        if not bool(torch.isfinite(tensor).all()):
            advice = "; hide a pair with mask=" if name == "bias" else ""
            raise UsageError(f"{option} holds a non-finite value, where no exact value exists{advice}")
        found[name] = tensor
    buckets = as_integers("distance_buckets", value_of(options, "distance_buckets"))
    if buckets is not None or "relative_bias" in found:
        _check_buckets(found.get("relative_bias"), buckets)
        found["distance_buckets"] = torch.tensor(buckets, dtype=torch.int32, device=device)
    return found


def _check_buckets(table: torch.Tensor | None, buckets: tuple[int, ...] | None) -> None:
    """Refuses buckets of distances that do not go with the table of a relative bias."""
    if table is None or buckets is None:
        name = "relative_bias" if table is None else "distance_buckets"
        raise UsageError(f"{name}=None is not accepted: relative_bias and distance_buckets belong together")
    if len(buckets) % 2 == 0:
        raise UsageError(f"distance_buckets of {len(buckets)} entries is not accepted: 2 * reach + 1 of them")
    if not 0 <= min(buckets) <= max(buckets) < table.shape[1]:
        found = f"values from {min(buckets)} to {max(buckets)}"
        raise UsageError(f"distance_buckets with {found} is not accepted: 0 to {table.shape[1] - 1}")


def _require_finite(name: str, tensor: torch.Tensor, inside: tuple[int, ...] | None) -> None:
    """Refuses NaN and infinities in a `[B, H, S, ...]` tensor, but for positions behind `inside` of each sequence."""
    import torch

    bad = ~torch.isfinite(tensor)
    if inside is not None:
        lengths = torch.tensor(inside, device=tensor.device).view(-1, 1, 1, *[1] * (tensor.dim() - 3))
        place = torch.arange(tensor.shape[2], device=tensor.device).view(1, 1, -1, *[1] * (tensor.dim() - 3))
        bad = bad & (place < lengths)
    if bool(bad.any()):
        raise UsageError(f"{name} holds a non-finite value inside the declared lengths, where no exact value exists")


def _with_pairs(inputs: Inputs, case: Case, options: AttentionOptions, device: torch.device) -> Inputs:
    """The inputs with what is given pair by pair: a dense mask, chosen keys and dropout."""
    from flashverify.api.dropout import kept

    pairs = (case.batch, case.heads_q, case.seq_q, case.seq_k)
    mask, visible = value_of(options, "mask"), inputs.visible
    if mask is not None:
        dense = expanded("mask", mask, pairs, device, "the row sees the key")
        visible = both_of(visible, lambda rows, keys: dense[:, :, rows, keys])
    visible = both_of(visible, selected(case, options, device))
    keep, probability = kept(case, options, device)
    return replace(inputs, visible=visible, keep=keep, dropout=probability)
