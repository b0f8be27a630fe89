"""A backward written by hand, on `[B, S, H, D]`, and its adapter; the forward is plain torch."""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject


@triton.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, scale, rows, keys, heads,
    D: tl.constexpr, ROOM: tl.constexpr, CAUSAL: tl.constexpr, OF_Q: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of rows (OF_Q), or those of a tile of keys; tensors are contiguous, lse and delta `[B, H, Sq]`."""
    tile, head, batch = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    d = tl.arange(0, ROOM)
    acc_1 = tl.zeros([BLOCK, ROOM], tl.float32)
    acc_2 = tl.zeros([BLOCK, ROOM], tl.float32)
    for start in range(0, keys if OF_Q else rows, BLOCK):
        row = (tile * BLOCK if OF_Q else start) + tl.arange(0, BLOCK)
        key = (start if OF_Q else tile * BLOCK) + tl.arange(0, BLOCK)
        at_row = ((batch * rows + row) * heads + head)[:, None] * D + d[None, :]
        at_key = ((batch * keys + key) * heads + head)[:, None] * D + d[None, :]
        in_row, in_key = (row < rows)[:, None] & (d < D)[None, :], (key < keys)[:, None] & (d < D)[None, :]
        q, do = tl.load(q_ptr + at_row, mask=in_row, other=0.0), tl.load(do_ptr + at_row, mask=in_row, other=0.0)
        k, v = tl.load(k_ptr + at_key, mask=in_key, other=0.0), tl.load(v_ptr + at_key, mask=in_key, other=0.0)
        statistic = (batch * heads + head) * rows + row
        lse = tl.load(lse_ptr + statistic, mask=row < rows, other=float("inf"))
        delta = tl.load(delta_ptr + statistic, mask=row < rows, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = (key < keys)[None, :] & (row < rows)[:, None]
        if CAUSAL:
            seen = seen & (key[None, :] <= row[:, None])
        p = tl.where(seen, tl.exp(s - lse[:, None]), 0.0)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = tl.where(seen, p * (dp - delta[:, None]), 0.0).to(q.dtype)
        if OF_Q:
            acc_1 += tl.dot(ds, k, input_precision="ieee")
        else:
            acc_1 += tl.dot(tl.trans(ds), q, input_precision="ieee")
            acc_2 += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
    own = tile * BLOCK + tl.arange(0, BLOCK)
    size = rows if OF_Q else keys
    at = ((batch * size + own) * heads + head)[:, None] * D + d[None, :]
    mask = (own < size)[:, None] & (d < D)[None, :]
    tl.store((dq_ptr if OF_Q else dk_ptr) + at, (acc_1 * scale).to(q_ptr.dtype.element_ty), mask=mask)
    if not OF_Q:
        tl.store(dv_ptr + at, acc_2.to(q_ptr.dtype.element_ty), mask=mask)


def backward(q, k, v, o, lse, do, scale, causal):
    """dQ, dK and dV of contiguous `[B, S, H, D]` tensors, from the O and the natural LSE of the forward."""
    (batch, rows, heads, dim), keys, block = q.shape, k.shape[1], 32
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    delta = (o.float() * do.float()).sum(-1).transpose(1, 2).contiguous()
    for of_q, size in ((True, rows), (False, keys)):
        backward_kernel[(triton.cdiv(size, block), heads, batch)](
            *(q, k, v, do, lse.contiguous(), delta, dq, dk, dv, scale, rows, keys, heads),
            D=dim,
            ROOM=max(16, triton.next_power_of_2(dim)),
            CAUSAL=causal,
            OF_Q=of_q,
            BLOCK=block,
        )
    return dq, dk, dv


def forward(q, k, v, scale, causal):
    """O `[B, H, S, D]` and the natural LSE, in fp32 with one rounding of O."""
    s = q.float() @ k.float().mT * scale
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
    return (torch.softmax(s, -1) @ v.float()).to(q.dtype), torch.logsumexp(s, -1)


def run_backward(p, found):
    x, o = p.contiguous("bshd").bshd(), found.o.transpose(1, 2)
    return p.gradients(*backward(x.q, x.k, x.v, o, found.lse, x.do.contiguous(), p.scale, p.causal is not None), "bshd")


@subject(
    supports=Supports(masks=("causal",), causal=("top-left",), gqa=False, equal_dims=True),
    contract=Contract(reads_outputs=True),
    backward=run_backward,
)
def hand_written_backward(p):
    return Forward(*forward(p.q, p.k, p.v, p.scale, p.causal is not None))
