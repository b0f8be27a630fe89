"""The attention problem of a layer of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.case import Case, Grad
from flashverify.case.masks.mask import Mask
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.subjects.interface import Subject
    from flashverify.training.settings import Settings

__all__ = ["case_of"]


def case_of(subject: Subject, settings: Settings) -> Case:
    """The attention problem of a layer: causal, forward and backward.

    Raises:
        UsageError: the subject does not accept it; the message says why.
    """
    if not subject.supports.backward or not {"dq", "dk", "dv"} <= subject.contract.gradients:
        raise UsageError(f"subject={settings.subject!r} is not accepted: it has no backward, and a training needs one")
    reasons = []
    for causal in ("top-left", "bottom-right"):  # the same mask where rows and keys are as many
        case = Case(
            batch=settings.batch,
            heads_q=settings.heads,
            heads_kv=settings.heads,
            seq_q=settings.length,
            seq_k=settings.length,
            dim_qk=settings.dim,
            dim_v=settings.dim,
            dtype=settings.dtype,
            mask=Mask(causal=causal),
            dropout=settings.dropout,
            grad=Grad(backward=True),
        )
        reason = subject.supports.refusal(case)
        if reason is None:
            return case
        reasons.append(reason)
    raise UsageError(
        f"subject={settings.subject!r} is not accepted: it does not take the layers of the model: {reasons[0]}"
    )
