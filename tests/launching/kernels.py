"""A Triton attention kernel of forty lines, as files of other packages have them: bare, and under decorators."""

import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q, k, v, scale, lse, o, sq_b, sq_h, sq_s, sk_b, sk_h, sk_s, heads, rows, keys, causal,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    b, h = tl.program_id(1) // heads, tl.program_id(1) % heads
    m, d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    at = b.to(tl.int64) * sq_b + h * sq_h + m[:, None].to(tl.int64) * sq_s + d[None, :]
    qs = tl.load(q + at, mask=m[:, None] < rows, other=0.0)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total, acc = tl.zeros([BLOCK_M], tl.float32), tl.zeros([BLOCK_M, D], tl.float32)
    for start in range(0, keys, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = b.to(tl.int64) * sk_b + h * sk_h + n[:, None].to(tl.int64) * sk_s + d[None, :]
        ks = tl.load(k + at, mask=n[:, None] < keys, other=0.0)
        vs = tl.load(v + at, mask=n[:, None] < keys, other=0.0)
        s = tl.dot(qs, tl.trans(ks), input_precision="ieee") * scale
        s = tl.where(n[None, :] < keys, s, float("-inf"))
        if causal:
            s = tl.where(m[:, None] >= n[None, :], s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p, decay = tl.exp(s - new[:, None]), tl.exp(top - new)
        total = total * decay + tl.sum(p, 1)
        acc = acc * decay[:, None] + tl.dot(p.to(vs.dtype), vs, input_precision="ieee")
        top = new
    row = tl.program_id(1).to(tl.int64) * rows + m
    tl.store(o + row[:, None] * D + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty), mask=m[:, None] < rows)
    tl.store(lse + row, top + tl.log(total), mask=m < rows)


def grid(p, meta):
    return triton.cdiv(p.case.seq_q, meta["BLOCK_M"]), p.case.batch * p.case.heads_q


def arguments(p, out):
    return {
        "q": p.q,
        "k": p.k,
        "v": p.v,
        "scale": p.scale,
        "lse": out.lse,
        "o": out.o,
        **dict(zip(("sq_b", "sq_h", "sq_s"), p.q.stride(), strict=False)),
        **dict(zip(("sk_b", "sk_h", "sk_s"), p.k.stride(), strict=False)),
        "heads": p.case.heads_q,
        "rows": p.case.seq_q,
        "keys": p.case.seq_k,
        "causal": p.causal is not None,
        "D": p.case.dim_qk,
    }
