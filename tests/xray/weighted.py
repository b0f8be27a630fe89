"""Attention whose mask can be edited output by output: every pair has a weight, 0 where it is masked, 1 where it is visible."""

import dataclasses

import torch

from flashverify.case.masks.predicate import visible
from flashverify.subjects import Contract, Forward, Gradients, Supports

MASKS = ("causal", "window", "key_lengths", "query_lengths", "packed", "tree", "blocks", "bitmap")
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


class Weighted:
    """O, LSE and the gradients in float64, rounded once to the dtype.

    Args:
        edit: maps (name of the output, weights `[B, Hq, Sq, Sk]`) to the weights that this output uses; `o` stands for O and LSE.
        heads: maps the number of a query head to that of the kv head that it reads.
        change: maps a `Forward` to the one that is returned.
    """

    name = "weighted"
    contract = Contract(deterministic=True)

    def __init__(self, edit=lambda _name, weights: weights, heads=None, change=lambda forward: forward, **supports):
        accepted = {"masks": MASKS, "logits": ("sink", "softcap", "alibi", "bias"), "empty": True, "dlse": True}
        self.supports = Supports(**(accepted | {"scales": ("positive", "zero", "negative")} | supports))
        self._edit, self._heads, self._change = edit, heads, change

    def form(self, case):
        from flashverify.numerics import Form

        return Form()

    def device(self):
        return "cpu"

    def evidence(self):
        return "cpu"

    def _weights(self, problem, name):
        case = problem.case
        see = visible(case)
        full = torch.ones(case.batch, case.heads_q, case.seq_q, case.seq_k, dtype=torch.float64)
        weights = full if see is None else full * see(slice(0, case.seq_q), slice(0, case.seq_k))
        return self._edit(name, weights.clone())

    def _wide(self, problem):
        case = problem.case
        group = case.heads_q // case.heads_kv
        heads = [h // group if self._heads is None else self._heads(h) for h in range(case.heads_q)]
        return problem.q.double(), problem.k.double()[:, heads], problem.v.double()[:, heads], heads

    def forward(self, problem):
        q, k, v, _ = self._wide(problem)
        logits, weights = problem.scale * (q @ k.mT), self._weights(problem, "o")
        extra = problem.sink.double().exp().view(1, -1, 1) * (weights.sum(-1) > 0) if problem.sink is not None else 0.0
        terms = weights * logits.exp()
        total = terms.sum(-1) + extra
        o = (terms @ v) / total.clamp(min=1e-300).unsqueeze(-1)
        forward = Forward(o.to(_DTYPES[problem.case.dtype]), total.log().float(), (logits, total))
        return dataclasses.replace(self._change(forward), saved=(logits, total))

    def backward(self, problem, forward):
        logits, total = forward.saved
        q, k, v, heads = self._wide(problem)
        do, dtype = problem.do.double(), _DTYPES[problem.case.dtype]
        plain = torch.where(total.unsqueeze(-1) > 0, logits.exp() / total.clamp(min=1e-300).unsqueeze(-1), 0.0)
        p = {name: plain * self._weights(problem, name) for name in ("dv", "dq", "dk")}
        spread = do @ v.mT - (do * forward.o.double()).sum(-1, keepdim=True)
        if problem.dlse is not None:
            spread = spread + problem.dlse.double().unsqueeze(-1)
        dq = problem.scale * (p["dq"] * spread) @ k
        dk = problem.scale * (p["dk"] * spread).mT @ q
        dv = p["dv"].mT @ do
        kv = torch.tensor(heads)
        dk, dv = (
            torch.zeros(x.shape, dtype=torch.float64).index_add_(1, kv, y)
            for x, y in ((problem.k, dk), (problem.v, dv))
        )
        return Gradients(dq.to(dtype), dk.to(dtype), dv.to(dtype))
