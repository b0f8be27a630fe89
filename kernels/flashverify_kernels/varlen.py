from typing import Unpack

import torch

from flashverify_kernels.autograd import differentiable
from flashverify_kernels.options import Options, VarlenOptions, check_names, described
from flashverify_kernels.packed import Packed

_ACCEPTED = VarlenOptions.__optional_keys__


@described(VarlenOptions, Options)
def attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    *,
    max_q: int,
    max_k: int,
    **options: Unpack[VarlenOptions],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the attention of sequences packed behind each other, differentiably in q, k, v, the bias, sinks and relative bias.

    Sequence s has the queries `cu_q[s]` to `cu_q[s + 1]` and the keys `cu_k[s]` to `cu_k[s + 1]`; either may be none. Its
    results are those of `attention` on it alone, bit for bit under the same launch configuration. Rows past the last
    sequence are neither read nor written, in any tensor: what they hold afterwards is undefined.

    Args:
        q: `[Tq, Hq, D]`, types and sizes as in `attention`.
        k: `[Tk, Hkv, D]`.
        v: `[Tk, Hkv, Dv]`.
        cu_q: `[n + 1]` int32, 0 first, never falling, at most Tq last. Values are checked on the CPU; on a GPU, where reading
            them would synchronise, they are relied on.
        cu_k: `[n + 1]` int32, likewise for the keys.
        max_q: at least the number of queries of the longest sequence; it sizes the launch.
        max_k: at least the number of keys of the longest sequence.
        scale: as in `attention`.
        causal: as in `attention`, aligned by the lengths of the sequence.
        window: likewise.
        prefix_lengths: `[n]` int32, one per sequence, from 0 to Tk; else as in `attention`. Keys past the end of a sequence are not
            seen.
        tree: `TreeMask.from_parents(parents, cu=...)`: a tree per sequence, whose nodes are its last keys.
        bitmap: words `[1, Hq or 1, Tq, ceil(max_k / 32)]`, keys numbered within the row's own sequence.
        blocks: `[1, Hq or 1, ceil(Tq / rows), ceil(Tk / keys)]`, counted from the start of q and k. A sequence starts anywhere in a
            block, so the pattern costs what a bitmap does.
        softcap: as in `attention`.
        alibi_slopes: as in `attention`, aligned by the lengths of the sequence.
        bias: `[1, Hq or 1, Tq, max_k]`, else as in `attention`; keys numbered within the row's own sequence.
        sink: as in `attention`.
        relative_bias: as in `attention`, aligned by the lengths of the sequence.
        dropout: as in `attention`; queries and keys are numbered within their sequence.
        precision: as in `attention`.
        config: as in `attention`.
        allow_interpreted_bf16: as in `attention`.

    Returns:
        O, `[Tq, Hq, Dv]` in the dtype of q, and the natural-log LSE, `[Hq, Tq]` fp32; both differentiable.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
        if x.dim() != 3:
            raise ValueError(f"{name}: expected 3 axes (rows, heads, channels), got shape {tuple(x.shape)}")
    check_names("attention_varlen", options, _ACCEPTED)
    given = Options.of({**options, "packed": Packed(cu_q, cu_k, max_q, max_k), "layout": "bshd"})
    o, lse = differentiable(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), given)
    assert lse is not None
    return o.squeeze(0), lse.squeeze(0)  # whose backward is a view, unlike that of an index
