"""Ring attention of `flashverify_kernels.ring` over several processes as one subject: 2, 4 or 8 ranks of `torch.distributed`."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from flashverify.subjects.bundled import Bundled
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports
from flashverify.subjects.ring.messages import Packed, Task, packed, unpacked
from flashverify.subjects.ring.pool import ranks_of

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics import Form
    from flashverify.subjects.launches import Launch

__all__ = ["BUNDLED_RING", "BundledRing"]

_LAUNCHES = [{"ranks": n, "sharding": place} for n, place in ((2, 0), (2, 1), (2, 2), (4, 0), (4, 1), (4, 2), (8, 1))]
_OF_KEYS = ("k", "v", "dk", "dv")
_SEQUENCE = 2
"""The axis that is spread over the ranks."""


class BundledRing(Bundled):
    """Hands each rank its shards, and puts what the ranks return together.

    The launch parameter `ranks` is their number, 2 by default; `sharding` the place of theirs among `SHARDINGS` of the package: 0
    contiguous, 1 striped (the default), 2 zigzag.
    """

    contract = Contract(
        lse_base="e",
        deterministic=True,
        batch_invariant=True,
        gradients=frozenset({"dq", "dk", "dv", "delta"}),
        reads_outputs=True,
        graphs=False,
    )

    def __init__(self, package: str = "flashverify_kernels", name: str = "bundled-ring") -> None:
        super().__init__(package, name)
        self.supports = Supports(
            precisions=("ieee", "tf32", "tf32x3"),
            masks=("causal", "key_lengths", "window"),
            logits=("softcap",),
            layouts=("bhsd",),
            contiguous=True,
            empty=True,
            scales=("positive", "zero", "negative"),
            dlse=True,
            launch_configs=_LAUNCHES,
            even_launches=False,
            also=self._ring_refusal,
        )

    def _ring_refusal(self, case: Case) -> str | None:
        if case.mask.causal == "bottom-right" and case.mask.key_lengths is not None:
            return "causal='bottom-right' with key_lengths: each sequence would have a band of its own"
        return self._dtype_refusal(case)

    def form(self, case: Case) -> Form:
        """Parts in fp32 that are merged one after the other, and gradients in fp32 that are added; the backward reads a natural LSE.

        A tile has as many keys as the kernels take, unless that depends on how many rows a rank has.
        """
        plain = dataclasses.replace(case, launch=())
        parts = self._count(case) * (2 if self._sharding(case) == "zigzag" else 1)
        sizes = {self._block_n(plain, rows) for rows in (1, case.seq_q)}
        return dataclasses.replace(
            super().form(plain),
            key_order="unknown",
            block_n=sizes.pop() if len(sizes) == 1 else None,
            n_splits=parts,
            n_merges=parts - 1,
            partial_lse_base="e",
            bwd_lse_base="e",
            grad_parts=parts,
        )

    def launches(self) -> list[Launch]:
        """None beside those of its parts."""
        return []

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        found = self._on_ranks("forward", problem, {"q": problem.q, "k": problem.k, "v": problem.v})
        case, like = problem.case, problem.q
        return Forward(
            self._whole(case, found, "o", case.shape_o, like.dtype, like.device),
            self._whole(case, found, "lse", case.shape_o[:3], None, like.device),
        )

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """The gradients from the returned O and LSE."""
        assert problem.do is not None
        assert forward.lse is not None
        given = {"q": problem.q, "k": problem.k, "v": problem.v, "do": problem.do, "o": forward.o, "lse": forward.lse}
        found = self._on_ranks("backward", problem, given | ({} if problem.dlse is None else {"dlse": problem.dlse}))
        sources = {"dq": problem.q, "dk": problem.k, "dv": problem.v}
        gradients = {
            name: self._whole(problem.case, found, name, x.shape, x.dtype, x.device) for name, x in sources.items()
        }
        delta = self._whole(problem.case, found, "delta", forward.lse.shape, None, problem.q.device)
        return Gradients(**gradients, delta=delta)

    def backward_of(self, problem: Problem, forward: Forward, wanted: frozenset[str]) -> dict[str, torch.Tensor]:
        """Some of the gradients; all are computed."""
        found = self.backward(problem, forward)
        return {name: getattr(found, name) for name in wanted if getattr(found, name) is not None}

    def _capability(self) -> None:
        """None: ranks compute O in fp32, which the kernels for Hopper GPUs do not."""

    def _on_ranks(self, function: str, problem: Problem, given: dict[str, torch.Tensor]) -> list[dict[str, Packed]]:
        case, count, ring = problem.case, self._count(problem.case), self._module("ring")
        options: dict[str, Any] = {
            "scale": problem.scale,
            "causal": problem.causal,
            "window": problem.window,
            "softcap": problem.softcap,
            "precision": case.precision,
            "allow_interpreted_bf16": self._interpreted,
        }
        tasks = []
        for rank in range(count):
            shards = {
                name: packed(ring.take(x, self._pieces(case, name, rank), _SEQUENCE)) for name, x in given.items()
            }
            if problem.key_lengths is not None:
                shards["key_lengths"] = packed(problem.key_lengths)
            whole = {"queries": case.seq_q, "keys": case.seq_k, "sharding": self._sharding(case)}
            tasks.append(
                Task(
                    function=function,
                    package=self._package,
                    path=tuple(sys.path),
                    ring=whole,
                    options=options,
                    tensors=shards,
                )
            )
        return ranks_of(count, self._package, interpreted=self._interpreted).run(tasks)

    def _whole(
        self,
        case: Case,
        found: list[dict[str, Packed]],
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype | None,
        device: torch.device,
    ) -> torch.Tensor:
        """The output of which each rank returned a shard; fp32 where no dtype is given."""
        import torch

        whole = torch.empty(tuple(shape), dtype=dtype or torch.float32, device=device)
        for rank, answer in enumerate(found):
            shard = unpacked(answer[name]).to(device)
            self._module("ring").put(whole, shard, self._pieces(case, name, rank), _SEQUENCE)
        return whole

    def _pieces(self, case: Case, name: str, rank: int) -> Any:
        length = case.seq_k if name in _OF_KEYS else case.seq_q
        return self._module("ring").pieces_of(length, self._count(case), rank, self._sharding(case))

    def _count(self, case: Case) -> int:
        return dict(case.launch).get("ranks", 2)

    def _sharding(self, case: Case) -> str:
        return str(self._module("ring").SHARDINGS[dict(case.launch).get("sharding", 1)])


BUNDLED_RING = BundledRing()
