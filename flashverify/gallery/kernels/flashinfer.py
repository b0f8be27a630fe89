"""FlashInfer's merges in Triton."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from flashverify.gallery.catalogue import release
from flashverify.gallery.partials import halves
from flashverify.gallery.place import modules_of
from flashverify.numerics.form import Form
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem

cascade = modules_of(release("flashinfer"))("flashinfer.triton.cascade")

_SUPPORTS = Supports(masks=("key_lengths",), dim_max=32, backward=False)
_CONTRACT = Contract(lse_base="2", padding="undefined", empty_row_o=None, empty_row_lse=None)


def _form(case: Case) -> Form:
    return Form(n_splits=2, partial_dtype=case.dtype, partial_lse_base="2", lse_base="2")


def _halves(p: Problem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    o_a, lse_a, o_b, lse_b = halves(p)
    return o_a, (lse_a.double() / math.log(2)).float(), o_b, (lse_b.double() / math.log(2)).float()


def _returned(p: Problem, o: torch.Tensor, lse: torch.Tensor) -> Any:
    shape = (p.case.batch, p.case.seq_q, p.case.heads_q)
    return p.outputs(o.view(*shape, -1), lse.view(shape), "bshd", "bsh")


@subject(supports=_SUPPORTS, contract=_CONTRACT, form=_form)
def merge(p: Problem) -> Any:
    return _returned(p, *cascade.merge_state(*_halves(p)))


@subject(supports=_SUPPORTS, contract=_CONTRACT, form=_form)
def merge_several(p: Problem) -> Any:
    o_a, lse_a, o_b, lse_b = _halves(p)
    return _returned(p, *cascade.merge_states(torch.stack((o_a, o_b), 1), torch.stack((lse_a, lse_b), 1)))
