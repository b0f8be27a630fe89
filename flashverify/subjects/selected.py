"""Attention over keys that are chosen by index, by the kernels of `flashverify_kernels`; forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.selections import Selections
from flashverify.subjects.bundled import Bundled
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics import Form
    from flashverify.subjects.launches import Launch

__all__ = ["BUNDLED_SELECTED", "BundledSelected"]


class BundledSelected(Bundled):
    """`selected_attention` of the kernel package; its gradients come from autograd."""

    contract = Contract(lse_base="e", deterministic=True, batch_invariant=True, reads_outputs=True)

    def __init__(self, package: str = "flashverify_kernels", name: str = "bundled-selected") -> None:
        super().__init__(package, name)
        self.supports = Supports(
            precisions=("ieee", "tf32", "tf32x3"),
            masks=("causal", "key_lengths", "selection"),
            required_masks=("selection",),
            selections=Selections(rows=(1, 1, 4, 16, 3), keys=(1, 1, 16, 4, 64, 3)),
            empty=True,
            scales=("positive", "zero", "negative"),
            dlse=True,
            strided=True,
            also=self._dtype_refusal,
        )

    def form(self, case: Case) -> Form:
        """That of `attention`; tiles hold the keys of a list, not those between multiples of a number of keys."""
        from flashverify.numerics import Form

        selection, keys = case.mask.selection, case.seq_k
        config = self._module("selected_launch").selected_config(
            "forward",
            d=case.dim_qk,
            dv=case.dim_v,
            dtype=self._dtype(case),
            packed=case.heads_q // case.heads_kv * (selection.rows if selection else 1),
            keys=selection.keys if selection else 1,
        )
        if selection is not None:
            blocks = min(selection.entries, -(-case.seq_k // selection.keys))
            keys = blocks * selection.keys
        return Form(
            gap_c=1.0,
            kappa=2.0,
            dot=case.precision,
            block_n=config.block_n,
            n_blocks=max(-(-keys // config.block_n), 1),
            masked_ds=True,
            architecture=self._architecture(),
        )

    def launches(self) -> list[Launch]:
        """What a GPU would compile, for `flashverify compile`."""
        from flashverify.subjects.listed_launches import selected_launches

        return selected_launches(self._package)

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        import torch

        case = problem.case
        wanted = case.grad.backward
        leaves = [x.detach().requires_grad_(wanted) for x in (problem.q, problem.k, problem.v)]
        selection = case.mask.selection
        assert selection is not None
        with torch.set_grad_enabled(wanted):
            o, lse = self._kernels.selected_attention(
                *(self._view(case, x) for x in leaves),
                self._kernels.Selection(indices=problem.selection, rows=selection.rows, keys=selection.keys),
                scale=case.scale,
                causal=problem.causal,
                key_lengths=problem.key_lengths,
                precision=case.precision,
                layout=case.storage.layout,
                return_lse=True,
                allow_interpreted_bf16=self._faithful(),
            )
            o = self._view(case, o)
        return Forward(o.detach(), lse.detach(), (leaves, o, lse))

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """The gradients of q, k and v."""
        return Gradients(*self._differentiated(problem, forward))

    def backward_of(self, problem: Problem, forward: Forward, wanted: frozenset[str]) -> dict[str, Any]:
        """Some of the gradients; the kernels compute all of them."""
        found = zip(("dq", "dk", "dv"), self._differentiated(problem, forward), strict=True)
        return {name: gradient for name, gradient in found if name in wanted}

    @staticmethod
    def _differentiated(problem: Problem, forward: Forward) -> Any:
        import torch

        leaves, o, lse = forward.saved
        given = [(o, problem.do)] + ([] if problem.dlse is None else [(lse, problem.dlse)])
        outputs, gradients = zip(*given, strict=True)
        return torch.autograd.grad(outputs, leaves, gradients, retain_graph=True)


BUNDLED_SELECTED = BundledSelected()
