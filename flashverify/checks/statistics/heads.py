"""Which heads of a case are asked: those whose values are spread evenly, each head of k with its query heads by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.heads import head_regimes, stored_heads

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["asked_groups", "unasked_heads"]

_EVEN = frozenset({"normal", "v-positive", "outlier", "negative", "logits-1e2", "few-keys"})
"""Regimes whose values are spread so evenly that the roundings of two rows, or of two keys, have nothing to do with each other."""
_NARROW = frozenset({"normal", "v-positive"})
"""Those with logits of about `|scale| sqrt(dim)`, which a softcap as large leaves apart."""
_LEAST_LOGIT = 0.25
"""Spread of the products below which biases alone decide, the same for many rows."""


def _asked_regimes(case: Case) -> frozenset[str]:
    spread, softcap = abs(case.softmax_scale) * case.dim_qk**0.5, case.logits.softcap
    if spread < _LEAST_LOGIT or (softcap is not None and softcap < spread):
        return frozenset()
    return _EVEN if softcap is None else _NARROW


def asked_groups(case: Case) -> int:
    """Rows, or keys where there are more, of the heads that are asked."""
    asked, regimes = _asked_regimes(case), head_regimes(case) or (case.values.regime,)
    heads = case.batch * case.heads_kv * sum(regime in asked for regime in regimes) // max(len(regimes), 1)
    return heads * max(case.heads_q // case.heads_kv * case.seq_q, case.seq_k)


def unasked_heads(case: Case) -> dict[str, torch.Tensor]:
    """Per output the heads of a mixed case that are not asked, bool, broadcasts with the output; nothing of a case of one regime."""
    import torch

    asked, regimes, stored = _asked_regimes(case), head_regimes(case), stored_heads(case)
    if not regimes:
        return {}
    odd = torch.tensor([regime not in asked for regime in regimes]).view(case.batch, stored)
    of_q, of_k = (odd.repeat_interleave(heads // stored, 1)[..., None, None] for heads in (case.heads_q, case.heads_kv))
    return {"o": of_q, "lse": of_q.squeeze(-1), "dq": of_q, "dk": of_k, "dv": of_k}
