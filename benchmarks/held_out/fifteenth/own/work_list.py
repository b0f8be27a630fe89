"""Attention of packed sequences in Triton by a list of tiles, written for this set: one program per head and entry, sequences of many keys first.

Forward only, exponentials to base 2, natural LSE. It takes groups of heads, causal masks of both alignments and ALiBi.
"""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Supports, subject


@triton.jit
def work_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, slopes_ptr, work_ptr, scale2, group, total_rows, total_keys, d, dv, align_end,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the natural LSE of a tile of rows; `EVEN`: no step of keys reaches over the end of its sequence."""
    h = tl.program_id(1).to(tl.int64)
    entry = work_ptr + tl.program_id(0) * 5
    q0, rows, k0 = tl.load(entry), tl.load(entry + 1), tl.load(entry + 2)
    n, first = tl.load(entry + 3), tl.load(entry + 4)
    shift = align_end * (n - rows)
    i = first + tl.arange(0, BLOCK)
    c, cv = tl.arange(0, C)[None, :], tl.arange(0, CV)[None, :]
    inside = (i < rows)[:, None]
    q = tl.load(q_ptr + ((h * total_rows + q0 + i)[:, None] * d + c), mask=inside & (c < d), other=0.0)
    slope = 0.0
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + h) * 1.4426950408889634
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    stop = tl.minimum(n, first + BLOCK + shift) if CAUSAL else n
    for start in range(0, stop, STEP):
        j = start + tl.arange(0, STEP)
        at = (h // group * total_keys + k0 + j)[:, None]
        there, there_v, see = c < d, cv < dv, inside
        if not EVEN:
            there, there_v, see = there & (j < n)[:, None], there_v & (j < n)[:, None], see & (j < n)[None, :]
        k = tl.load(k_ptr + (at * d + c), mask=there, other=0.0)
        v = tl.load(v_ptr + (at * dv + cv), mask=there_v, other=0.0)
        z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale2
        if slopes_ptr is not None:
            z -= slope * tl.abs(i[:, None] + shift - j[None, :]).to(tl.float32)
        if CAUSAL:
            see = see & (j[None, :] <= i[:, None] + shift)
        z = tl.where(see, z, float("-inf"))
        m_new = tl.maximum(m, tl.max(z, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(z - pivot[:, None])
        alpha = tl.exp2(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    divisor = tl.where(total == 0.0, 1.0, total)
    o = (acc / divisor[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + ((h * total_rows + q0 + i)[:, None] * dv + cv), o, mask=inside & (cv < dv))
    tl.store(lse_ptr + h * total_rows + q0 + i, (m + tl.log2(divisor)) * 0.6931471805599453, mask=i < rows)


def work_of(cu_q, cu_k, block):
    """`[tiles, 5]` int32 of the tiles of rows: where rows start, their number, where keys start, their number, and the first row of the tile."""
    order = torch.argsort(cu_k.diff(), descending=True, stable=True)
    rows, keys = cu_q.diff()[order], cu_k.diff()[order]
    starts, key_starts = cu_q[:-1][order], cu_k[:-1][order]
    table = torch.stack([starts, rows, key_starts, keys], 1)
    entries = [(*entry, first) for entry in table.tolist() for first in range(0, entry[1], block)]
    return torch.tensor(entries, dtype=torch.int32, device=cu_q.device).view(-1, 5)


def even(cu_k, step):
    """Whether the keys of all sequences are whole steps."""
    return bool((cu_k.diff() % step == 0).all())


@subject(
    supports=Supports(
        masks=("causal", "packed"),
        required_masks=("packed",),
        logits=("alibi",),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        backward=False,
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
    contract=Contract(padding="undefined"),
)
def work_list(p):
    """The adapter."""
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    (_, heads, rows, d), (_, kv_heads, keys, dv) = q.shape, v.shape
    o = torch.zeros(1, heads, rows, dv, dtype=q.dtype, device=q.device)
    lse = torch.full((1, heads, rows), -torch.inf, device=q.device)
    sizes = {"BLOCK": 32, "STEP": 32} | dict(p.case.launch or ())
    work = work_of(p.cu_q, p.cu_k, sizes["BLOCK"])
    if not work.numel():
        return o, lse
    work_kernel[(work.shape[0], heads)](
        q, k, v, o, lse, None if p.slopes is None else p.slopes.contiguous(), work, p.scale * 1.4426950408889634,
        heads // kv_heads, rows, keys, d, dv, int(p.causal == "bottom-right"),
        CAUSAL=p.causal is not None, EVEN=even(p.cu_k, sizes["STEP"]),
        C=max(16, triton.next_power_of_2(d)), CV=max(16, triton.next_power_of_2(dv)), enable_fp_fusion=False, **sizes,
    )  # fmt: skip
    return o, lse


SUBJECT = work_list
