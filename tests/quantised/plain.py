"""Attention over codes in plain torch, in each way that a kernel turns codes into numbers, with a place for a defect."""

import torch

from flashverify import Contract, Supports, subject
from flashverify.numerics import Form

FORMATS = ("e4m3", "e5m2", "int8", "int4")
MIDDLE = {"int4": 8}
E4M3_FACTOR = 256.0


def numbers(codes, name):
    """Codes as fp32 numbers."""
    if name == "int4":
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
    return codes.float()


def of_keys(groups, view):
    """What groups of keys share, for each key, `[B, Hkv, Sk, 1]`."""
    keys = torch.arange(view.k.shape[2]) // view.keys_per_scale
    found = groups.float().index_select(2, keys.clamp(max=groups.shape[2] - 1))
    return found.expand(*view.k.shape[:3]).unsqueeze(-1)


def attention(p, mode="operand", scales=None, shift=True, q_scales=None):
    """(o, lse).

    Args:
        p: the problem.
        mode: `operand`, `narrow`, `folded`, `last` (folded, the scale of V on the result) or `fp8` (weights in e4m3).
        scales: maps (view, scale of K, scale of V of each key) to the scales that are used, of kv heads or of query heads.
        shift: whether zero points are subtracted.
        q_scales: maps the scale of each row of a q in codes to the one that is used.
    """
    view, dtype = p.quantised(), p.q.dtype
    s_k, s_v = of_keys(view.k_scale, view), of_keys(view.v_scale, view)
    if scales is not None:
        s_k, s_v = scales(view, s_k, s_v)
    k, v = numbers(view.k, view.codes), numbers(view.v, view.codes)
    q, s_q = view.q.float(), torch.ones(1)
    if view.q_scale is not None:
        rows = (torch.arange(q.shape[2]) // view.rows_per_scale).clamp(max=view.q_scale.shape[2] - 1)
        s_q = view.q_scale.index_select(2, rows).expand(q.shape[:3]).unsqueeze(-1)
        s_q = s_q if q_scales is None else q_scales(s_q)
    if mode in ("operand", "narrow"):
        carried = s_q.to(dtype).float() if mode == "narrow" else s_q
        q, s_q = (q * carried).to(dtype).float(), torch.ones(1)
    middle = MIDDLE.get(view.codes, 0)
    if shift:
        k = k - (middle if view.k_zero is None else of_keys(view.k_zero, view))
        v = v - (middle if view.v_zero is None else of_keys(view.v_zero, view))
    if mode == "operand":
        k, v = (k * s_k).to(dtype).float(), (v * s_v).to(dtype).float()
    elif mode == "narrow":
        k, v = ((x.to(dtype) * s.to(dtype)).float() for x, s in ((k, s_k), (v, s_v)))
    if mode in ("operand", "narrow"):
        s_k = s_v = torch.ones_like(s_k)
    heads = p.q.shape[1]
    k, v, s_k, s_v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v, s_k, s_v))
    z = q @ k.mT * p.scale * s_k.mT * s_q
    see = p.dense_mask()
    if see is not None:
        z = z.masked_fill(~see, -torch.inf)
        seen = see.any(2).unsqueeze(-1)
        v, s_v = v.where(seen, 0.0), s_v.where(seen, 0.0)
    top = z.amax(-1, keepdim=True)
    top = torch.where(torch.isinf(top), 0.0, top)
    w = torch.exp(z - top)
    total = w.sum(-1, keepdim=True)
    if mode == "fp8":
        carried = (w * E4M3_FACTOR).to(torch.float8_e4m3fn).float() / E4M3_FACTOR
    else:
        carried = (w * s_v.mT if mode == "folded" else w).to(dtype).float()
    o = carried @ v / torch.where(total == 0, 1.0, total)
    if mode in ("last", "fp8"):
        o = o * s_v[:, :, :1]
    return o.to(dtype), (top + total.log()).squeeze(-1)


FORMS = {
    "operand": Form(dequantised="operand"),
    "narrow": Form(dequantised="narrow"),
    "folded": Form(dequantised="folded"),
    "last": Form(dequantised="folded", v_scale_last=True),
    "fp8": Form(dequantised="folded", v_scale_last=True, p_dtype="e4m3", p_factor=E4M3_FACTOR),
}


def plain(mode="operand", form=None, **options):
    """The subject."""
    one_scale = mode in ("last", "fp8")
    declared = Supports(
        dtypes=("fp16", "bf16"),
        masks=("causal", "key_lengths"),
        backward=False,
        quantised=FORMATS,
        quantised_scales=("tensor", "head") if one_scale else ("tensor", "head", "token", "block"),
        zero_points=True,
        quantised_q=("values", "codes"),
        non_finite=False,
    )
    form = FORMS[mode] if form is None else form

    @subject(name=mode, supports=declared, contract=Contract(gradients=frozenset()), form=form, device="cpu")
    def made(p):
        return attention(p, mode, **options)

    return made
