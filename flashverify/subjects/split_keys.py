"""What the forward-only kernels of `flashverify_kernels` over parts of the keys have in common: decoding, latent and quantised caches."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from flashverify.subjects.bundled import Bundled
from flashverify.subjects.interface import Contract, Forward, Gradients

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics import Form

__all__ = ["SplitKeys"]


class SplitKeys(Bundled):
    """A chosen number of splits depends on the batch, so batch invariance is not promised."""

    contract = Contract(lse_base="e", deterministic=True)

    def form(self, case: Case) -> Form:
        """Partial results in fp32 with a base-2 LSE, merged once. A single part walks its tiles in order."""
        from flashverify.numerics import Form

        parts = self._parts(case)
        return Form(
            gap_c=1.0,
            kappa=2.0,
            dot=case.precision,
            block_n=self._config(case).block_n,
            n_splits=parts,
            key_order="ascending" if parts == 1 else "unknown",
            architecture=self._architecture(),
        )

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """There is none.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(f"{self.name} has no backward")

    def _parts(self, case: Case) -> int:
        """Partial results that are merged."""
        return self._splits(case)

    @abstractmethod
    def _splits(self, case: Case) -> int:
        """The number given, or the one that the kernels choose."""

    @abstractmethod
    def _config(self, case: Case) -> Any:
        """Tiles of the launch."""

    def _rows(self, case: Case) -> int:
        """Rows that share a kv head."""
        return case.heads_q // case.heads_kv * case.seq_q

    def _room(self, case: Case) -> int:
        """Keys that the tensors or the pages of a sequence have room for."""
        size = case.storage.page_size
        return case.seq_k if size is None else max(-(-case.seq_k // size), 1) * size

    def _lengths(self, problem: Problem) -> torch.Tensor | None:
        """The declared key lengths; of pages, which have room for more keys, those of the case where none are declared."""
        import torch

        case, lengths = problem.case, problem.key_lengths
        if problem.pages is None or lengths is not None:
            return lengths
        return torch.full((case.batch,), case.seq_k, dtype=torch.int32, device=problem.q.device)

    def _torch_device(self) -> torch.device:
        import torch

        return torch.device(self.device())
