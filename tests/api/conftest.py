"""A plain attention in float64 with the roundings of stored tensors: right within the bounds, to plant single defects in."""

import math
import sys
from types import SimpleNamespace

import pytest
import torch


def reference(
    q, k, v, do=None, dlse=None, *, visible=None, softcap=None, bias=None, sink=None, keep=None, p=0.0, scale=None
):
    """The definition in float64, its backward from the stored O and LSE, every output rounded to the dtype of q, LSE to fp32."""
    stored, wide = q.dtype, torch.float64 if q.dtype == torch.float64 else torch.float32
    group, scale = q.shape[1] // k.shape[1], q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v = q.double(), *(x.double().repeat_interleave(group, 1) for x in (k, v))
    capped = q @ k.mT * scale
    capped = capped if softcap is None else softcap * torch.tanh(capped / softcap)
    logits = capped if bias is None else capped + bias.double()
    logits = logits if visible is None else logits.masked_fill(~visible, -math.inf)
    seen = torch.isfinite(logits).any(-1)
    lse = logits.logsumexp(-1)
    lse = lse if sink is None else torch.where(seen, torch.logaddexp(lse, sink.double().view(1, -1, 1)), lse)
    finite = lse.to(wide).double().masked_fill(~seen, 0.0)
    kept = torch.ones((), dtype=torch.float64) if keep is None else keep / (1 - p)
    o = (torch.exp(logits - lse.masked_fill(~seen, 0.0).unsqueeze(-1)) * kept @ v).to(stored)
    found = {"o": o, "lse": lse.to(wide)}
    if do is None and dlse is None:
        return found
    do, dlse = (torch.zeros((), dtype=torch.float64) if x is None else x.double() for x in (do, dlse))
    do = do.expand(o.shape)
    delta = ((do * o.double()).sum(-1) - dlse).masked_fill(~seen, 0.0)
    weights = torch.exp(logits - finite.unsqueeze(-1))
    ds = weights * (do @ v.mT * kept - delta.unsqueeze(-1))
    dv, gradients = (weights * kept).mT @ do, {}
    if bias is not None:
        gradients["dbias"] = ds.sum_to_size(bias.shape)
    if sink is not None:
        gradients["dsink"] = (-torch.exp(sink.double().view(1, -1, 1) - finite) * delta).sum((0, 2)).to(wide)
    ds = ds * scale if softcap is None else ds * scale * (1 - (capped / softcap) ** 2)
    heads = (*o.shape[:1], -1, group)
    gradients |= {
        "dq": ds @ k,
        "dk": (ds.mT @ q).unflatten(1, heads[1:]).sum(2),
        "dv": dv.unflatten(1, heads[1:]).sum(2),
    }
    return found | {name: x if name == "dsink" else x.to(stored) for name, x in gradients.items()}


def drawn(dtype=torch.float32, *, batch=2, heads=4, kv=2, rows=24, keys=32, dim=16, seed=0):
    """q, k, v, do and dlse, `[B, H, S, D]`."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g)

    return SimpleNamespace(
        q=normal(batch, heads, rows, dim).to(dtype),
        k=normal(batch, kv, keys, dim).to(dtype),
        v=normal(batch, kv, keys, dim).to(dtype),
        do=normal(batch, heads, rows, dim).to(dtype),
        dlse=normal(batch, heads, rows),
        normal=normal,
    )


@pytest.fixture(params=[torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
def dtype(request):
    return request.param


@pytest.fixture
def draw():
    return drawn


@pytest.fixture
def attention():
    return reference


@pytest.fixture(autouse=True)
def _no_launch_before(monkeypatch):
    """What another test launched in Triton's own interpreter is no reason to refuse bf16 in this one."""
    loaded = sys.modules.get("triton.runtime.interpreter")
    if loaded is not None:
        monkeypatch.delattr(loaded.interpreter_builder, "grid_dim", raising=False)
