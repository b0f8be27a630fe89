"""Attention over K and V with lengths as Triton kernels, right but for one read of padding that is asked for by name."""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Supports, subject

__all__ = ["IN_FORWARD", "IN_GRADIENTS", "IN_HOST", "attend"]

_O = ("o", "dq", "dk")
IN_FORWARD = {
    "into o": _O,
    "into lse": ("lse", "dq", "dk", "dv"),
    "compared": _O,
    "as a mask of a load": _O,
    "as an offset": _O,
    "as the end of a loop": _O,
    "branched on": _O,
    "by an atomic operation": _O,
    "by a descriptor": _O,
    "through a scratch buffer": _O,
}
"""By what the last key or value of each sequence does, whatever the length: the outputs that depend on it, gradients of these too."""
IN_GRADIENTS = {"into dq": ("dq",), "into dk": ("dk",), "into dv": ("dv",), "compared in the backward": ("dk",)}
IN_HOST = {"as a number of the host": _O, "as a tensor of the host": _O}
_LARGE = tl.constexpr(1e30)


@triton.jit
def last_of(ptr, at, keys, D: tl.constexpr):
    """The last key or value, whatever the length."""
    return tl.load(ptr + at + (keys - 1) * D + tl.arange(0, D))


@triton.jit
def scratch_kernel(v_ptr, scratch_ptr, keys, D: tl.constexpr):
    at = tl.program_id(0)
    tl.store(scratch_ptr + at, 0.0 * tl.sum(last_of(v_ptr, at * keys * D, keys, D)))


@triton.jit
def forward_kernel(q_ptr, k_ptr, v_ptr, lengths_ptr, scratch_ptr, o_ptr, lse_ptr, scale, factor, heads, rows, keys,
                   READ: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr):  # fmt: skip
    at = tl.program_id(0)
    length, i, j, d = tl.load(lengths_ptr + at // heads), tl.arange(0, TILE), tl.arange(0, TILE), tl.arange(0, D)
    of_q, of_k = at * rows * D + i[:, None] * D + d[None, :], at * keys * D + j[:, None] * D + d[None, :]
    large = False
    if READ != "":
        last = last_of(v_ptr, at * keys * D, keys, D)
        large = tl.max((tl.abs(last) > _LARGE).to(tl.int32))
    inside = (j < length)[:, None]
    if READ == "as a mask of a load":
        inside = inside & (large == 0)
    q = tl.load(q_ptr + of_q, mask=(i < rows)[:, None], other=0.0)
    k = tl.load(k_ptr + of_k, mask=(j < length)[:, None], other=0.0)
    if READ == "as an offset":
        of_k = of_k + large * D
    v = tl.load(v_ptr + of_k, mask=inside, other=0.0)
    s = tl.where((j < length)[None, :], tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -1e30)
    largest = tl.max(s, 1)
    p = tl.exp(s - largest[:, None])
    total = tl.sum(p, 1)
    o, lse = tl.dot(p, v, input_precision="ieee") / total[:, None] * factor, largest + tl.log(total)
    if READ == "into o":
        o += 0.0 * last[None, :]
    if READ == "into lse":
        lse += 0.0 * tl.sum(last)
    if READ == "compared":
        o = tl.where((tl.abs(last) > _LARGE)[None, :], 0.0, o)
    if READ == "as the end of a loop":
        for _ in range(large):
            o = o * 2.0
    if READ == "branched on" and large > 0:
        o = o * 2.0
    if READ == "by a descriptor":
        tile = tl.make_tensor_descriptor(v_ptr + at * keys * D, [keys, D], [D, 1], [TILE, D])
        o += 0.0 * tl.sum(tile.load([0, 0]), 0)[None, :]
    if READ == "through a scratch buffer":
        o += tl.load(scratch_ptr + at)
    if READ == "by an atomic operation":
        tl.atomic_add(o_ptr + of_q, o + 0.0 * last[None, :], mask=(i < rows)[:, None])
    else:
        tl.store(o_ptr + of_q, o, mask=(i < rows)[:, None])
    tl.store(lse_ptr + at * rows + i, lse, mask=i < rows)


@triton.jit
def backward_kernel(q_ptr, k_ptr, v_ptr, lengths_ptr, o_ptr, lse_ptr, do_ptr, dq_ptr, dk_ptr, dv_ptr, scale, heads, rows, keys,
                    READ: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr):  # fmt: skip
    at = tl.program_id(0)
    length, i, j, d = tl.load(lengths_ptr + at // heads), tl.arange(0, TILE), tl.arange(0, TILE), tl.arange(0, D)
    of_q, of_k = at * rows * D + i[:, None] * D + d[None, :], at * keys * D + j[:, None] * D + d[None, :]
    here, inside = i < rows, j < length
    q = tl.load(q_ptr + of_q, mask=here[:, None], other=0.0)
    o = tl.load(o_ptr + of_q, mask=here[:, None], other=0.0)
    do = tl.load(do_ptr + of_q, mask=here[:, None], other=0.0)
    k = tl.load(k_ptr + of_k, mask=inside[:, None], other=0.0)
    v = tl.load(v_ptr + of_k, mask=inside[:, None], other=0.0)
    lse = tl.load(lse_ptr + at * rows + i, mask=here, other=0.0)
    seen = here[:, None] & inside[None, :]
    p = tl.where(seen, tl.exp(tl.dot(q, tl.trans(k), input_precision="ieee") * scale - lse[:, None]), 0.0)
    ds = p * (tl.dot(do, tl.trans(v), input_precision="ieee") - tl.sum(o * do, 1)[:, None]) * scale
    dq, dk = tl.dot(ds, k, input_precision="ieee"), tl.dot(tl.trans(ds), q, input_precision="ieee")
    dv = tl.dot(tl.trans(p), do, input_precision="ieee")
    if READ == "into dq":
        dq += 0.0 * last_of(k_ptr, at * keys * D, keys, D)[None, :]
    if READ == "into dk":
        dk += 0.0 * last_of(v_ptr, at * keys * D, keys, D)[None, :]
    if READ == "into dv":
        dv += 0.0 * last_of(k_ptr, at * keys * D, keys, D)[None, :]
    if READ == "compared in the backward":
        dk = tl.where((tl.abs(last_of(v_ptr, at * keys * D, keys, D)) > _LARGE)[None, :], 0.0, dk)
    tl.store(dq_ptr + of_q, dq, mask=here[:, None])
    tl.store(dk_ptr + of_k, dk, mask=(j < keys)[:, None])
    tl.store(dv_ptr + of_k, dv, mask=(j < keys)[:, None])


def lengths_of(p):
    return p.key_lengths if p.key_lengths is not None else torch.full((p.q.shape[0],), p.k.shape[2], dtype=torch.int32)


def attend(read="", deterministic=True):
    """A subject that is right, or that reads padding in the one way that `read` names; what it promises of its bits."""

    def backward(p, forward):
        made = [torch.empty_like(x) for x in (p.q, p.k, p.v)]
        batch, heads, rows, dim = p.q.shape
        backward_kernel[(batch * heads,)](
            *(p.q, p.k, p.v, lengths_of(p), forward.o, forward.lse, p.do, *made, p.scale, heads, rows, p.k.shape[2]),
            READ=read if read in IN_GRADIENTS else "",
            D=dim,
            TILE=16,
        )
        return tuple(made)

    def function(p):
        (batch, heads, rows, dim), keys, v, factor = p.q.shape, p.k.shape[2], p.v, 1.0
        o = torch.zeros_like(p.q) if read == "by an atomic operation" else torch.empty_like(p.q)
        lse, scratch = p.q.new_empty(batch, heads, rows), p.q.new_empty(batch * heads)
        if read == "through a scratch buffer":
            scratch_kernel[(batch * heads,)](v, scratch, keys, D=dim)
        if read == "as a number of the host":
            factor = 1.0 + float((v[:, :, -1].abs() > 1e30).any())
        if read == "as a tensor of the host":
            v = v + 0.0 * v[:, :, -1:]
        forward_kernel[(batch * heads,)](
            *(p.q, p.k, v, lengths_of(p), scratch, o, lse, p.scale, factor, heads, rows, keys),
            READ=read if read in IN_FORWARD else "",
            D=dim,
            TILE=16,
        )
        return o, lse

    sizes = {"seq_q": range(1, 17), "seq_k": range(1, 17), "group_sizes": (1,), "dim_pairs": ((16, 16),)}
    accepted = Supports(masks=("key_lengths",), dtypes=("fp32",), contiguous=True, **sizes)
    return subject(supports=accepted, contract=Contract(deterministic=deterministic), backward=backward)(function)
