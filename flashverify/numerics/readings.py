"""The backwards that a form leaves open: what delta is summed from, and where P comes from."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.numerics.form import Form

__all__ = ["from_outputs", "readings"]

_READINGS = (
    ("o", "lse"),  # flash attention: the stored O and LSE
    ("p", "forward"),  # autograd of the definition
    ("p", "lse"),
    ("o_fp32", "lse"),
    ("o", "forward"),
    ("o_fp32", "forward"),
)
"""(`delta_from`, `p_from`), the usual ones first."""
_FORMS = 1024
"""Forms whose readings are kept: a form is checked as a whole each time that one is made."""


@lru_cache(maxsize=_FORMS)
def readings(form: Form) -> tuple[Form, ...]:
    """Every form that a form with fields `"unknown"` may stand for; one that declares both stands for itself.

    A kernel is right where it is right under one of them. The first is the one that the bounds of the form itself assume.
    """
    found = []
    for delta_from, p_from in _READINGS:
        if form.delta_from not in ("unknown", delta_from) or form.p_from not in ("unknown", p_from):
            continue
        if p_from == "forward" and form.recomputes:
            continue
        own = dataclasses.replace(form, delta_from=delta_from, p_from=p_from)
        if own != form and (delta_from, p_from) == ("p", "forward") and form.scale_ds == "after":
            own = dataclasses.replace(own, scale_ds="operand")  # autograd multiplies dS, unrounded, before its dots
        found.append(own)
    return tuple(found)


@lru_cache(maxsize=_FORMS)
def from_outputs(form: Form) -> Form:
    """The form of a kernel whose backward starts from the O and the LSE that it returns, where it leaves that open."""
    return dataclasses.replace(
        form,
        delta_from="o" if form.delta_from == "unknown" else form.delta_from,
        p_from="lse" if form.p_from == "unknown" else form.p_from,
    )
