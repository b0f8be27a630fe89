"""Attention over chunks of the keys, merged by `merge` of `flashverify_kernels`: what ring attention does; forward only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.subjects.bundled import Bundled
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics import Form
    from flashverify.subjects.launches import Launch

__all__ = ["BUNDLED_CHUNKED", "BundledChunked"]

_CHUNKS = (1, 2, 3, 5)
_DEFAULT = 2


class BundledChunked(Bundled):
    """`attention` on each chunk of the keys, then `merge`; partial outputs are rounded to the dtype of the inputs."""

    contract = Contract(lse_base="e", deterministic=True, batch_invariant=True, reads_outputs=True)

    def __init__(self, package: str = "flashverify_kernels", name: str = "bundled-chunked") -> None:
        super().__init__(package, name)
        self.supports = Supports(
            masks=("key_lengths",),
            empty=True,
            scales=("positive", "zero", "negative"),
            backward=False,
            launch=(("chunks", _CHUNKS),),
            even_launches=False,
            also=self._dtype_refusal,
        )

    def form(self, case: Case) -> Form:
        """A split for every chunk, whose O is rounded to the dtype and whose LSE is natural."""
        import dataclasses

        form = super().form(dataclasses.replace(case, launch=()))
        return dataclasses.replace(form, n_splits=self._chunks(case), partial_dtype=case.dtype, partial_lse_base="e")

    def launches(self) -> list[Launch]:
        """None beside those of its parts."""
        return []

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        import torch

        case, count = problem.case, self._chunks(problem.case)
        parts = []
        for n in range(count):
            start, end = case.seq_k * n // count, case.seq_k * (n + 1) // count
            parts.append(self._attend(problem, start, end))
        if count == 1:
            return Forward(*parts[0])
        stack = _spread if case.values.seed % 2 else torch.stack
        o, lse = self._kernels.merge(
            stack([part for part, _ in parts]),
            stack([part for _, part in parts]),
            allow_interpreted_bf16=self._faithful(),
        )
        return Forward(o, lse)

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """There is none.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("the gradients through a merge are not judged")

    def _attend(self, problem: Problem, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """O and LSE over the keys from `start` to `end`."""
        lengths = problem.key_lengths
        q, k, v = (
            self._view(problem.case, x) for x in (problem.q, problem.k[:, :, start:end], problem.v[:, :, start:end])
        )
        o, lse = self._kernels.attention(
            q,
            k,
            v,
            scale=problem.scale,
            key_lengths=None if lengths is None else (lengths - start).clamp(0, end - start),
            layout=problem.case.storage.layout,
            return_lse=True,
            allow_interpreted_bf16=self._faithful(),
        )
        return self._view(problem.case, o), lse

    def _chunks(self, case: Case) -> int:
        return dict(case.launch).get("chunks", _DEFAULT)


def _spread(tensors: list[torch.Tensor]) -> torch.Tensor:
    """The stack of `tensors` with a stride of 2 along its last axis; NaN lies in between."""
    import torch

    model = tensors[0]
    room = model.new_full((len(tensors), *model.shape[:-1], 2 * model.shape[-1]), torch.nan)
    stacked = room[..., ::2]
    torch.stack(tensors, out=stacked)
    return stacked


BUNDLED_CHUNKED = BundledChunked()
