"""Attention as the literature first wrote it down (`flashverify_kernels.algorithms`) as subjects, in the interpreter."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from flashverify.subjects.evidence import evidence_on, interpreted_as
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics import Form

__all__ = ["PAPER_BLOCK_SPARSE", "PAPER_FLASH", "PAPER_VARLEN", "RABE_STAATS", "STANDARD", "TWO_PASS", "Algorithm"]

_BLOCKS = (16, 32, 64)
_DEFAULT = 32


def _refusal(case: Case) -> str | None:
    session = sys.modules.get("flashverify.interpreter.session")
    if session is None or session.active() is None:
        return "it runs in flashverify's interpreter only: use --device cpu"
    names = {name for name, _ in case.launch}
    if case.launch and names != {"block_m", "block_n"}:
        return f"launch={case.launch}: block_m and block_n belong together"
    return None


def _tiles(case: Case) -> dict[str, int]:
    """Launch parameters: those of the case, or the largest tile that divides the blocks of the pattern."""
    if case.launch:
        return dict(case.launch)
    blocks = case.mask.blocks
    whole = (_DEFAULT, _DEFAULT) if blocks is None else (blocks.rows, blocks.keys)
    return dict(zip(("block_m", "block_n"), (max(min(n & -n, _BLOCKS[-1]), _BLOCKS[0]) for n in whole), strict=True))


class Algorithm:
    """One of the algorithms.

    Args:
        name: in reports; `<name>_forward` and, where it has gradients, `<name>_backward` are its functions.
        prefix: of these functions.
        form: fields in which its form differs from that of the bundled kernels.
        backward: whether it has gradients; `delta` whether delta is among them.
        blocks: whether it takes a block-sparse pattern, which then decides on the tiles.
        packed: whether it takes packed sequences, and them alone.
        dropout: whether it drops weights.
    """

    def __init__(
        self,
        name: str,
        prefix: str,
        *,
        form: Mapping[str, Any] | None = None,
        backward: bool = True,
        delta: bool = False,
        blocks: bool = False,
        packed: bool = False,
        dropout: bool = False,
    ) -> None:
        self.name = name
        self._prefix, self._form = prefix, dict(form or {})
        gradients = frozenset({"dq", "dk", "dv", "delta"} if delta else {"dq", "dk", "dv"})
        self.contract = Contract(
            lse_base="e",
            deterministic=True,
            batch_invariant=True,
            gradients=gradients,
            padding="undefined" if packed else "written",
            reads_outputs=self._form.get("p_from") != "forward",
        )
        self.supports = Supports(
            masks=("causal", "packed") if packed else ("causal", "key_lengths", *(("blocks",) if blocks else ())),
            required_masks=("packed",) if packed else (),
            scales=("positive", "zero", "negative"),
            dropout=dropout,
            dim_max=128,
            backward=backward,
            launch=() if blocks else (("block_m", _BLOCKS), ("block_n", _BLOCKS)),
            even_launches=False,
            also=_refusal,
        )

    def _function(self, kind: str) -> Any:
        from flashverify_kernels import algorithms

        return getattr(algorithms, f"{self._prefix}_{kind}")

    def _setting(self, problem: Problem) -> Any:
        from flashverify_kernels import Dropout
        from flashverify_kernels.algorithms import LiveBlocks, Setting

        case, shape, pattern = problem.case, problem.case.mask.blocks, None
        if shape is not None and problem.blocks is not None:
            pattern = LiveBlocks(live=problem.blocks, rows=shape.rows, keys=shape.keys)
        return Setting(
            scale=problem.scale,
            causal=case.mask.causal,
            key_lengths=problem.key_lengths,
            blocks=pattern,
            cu=None if problem.cu_q is None or problem.cu_k is None else (problem.cu_q, problem.cu_k),
            dropout=Dropout(problem.dropout_p, problem.dropout_seed, problem.dropout_offset)
            if problem.dropout_p
            else None,
            **_tiles(case),
        )

    def form(self, case: Case) -> Form:
        """As the bundled kernels', but for the fields that it has of its own."""
        from flashverify.numerics import Form

        return Form(
            gap_c=1.0,
            kappa=2.0,
            block_n=_tiles(case)["block_n"],
            architecture=interpreted_as()[1],
            **self._form,
        )

    def device(self) -> str:
        """The CPU: nothing orders what a program of a GPU stores before what it loads again."""
        return "cpu"

    def evidence(self) -> str:
        """The interpreter."""
        return evidence_on("cpu", triton=True)

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        found = self._function("forward")(problem.q, problem.k, problem.v, self._setting(problem))
        return Forward(found.o, found.lse, found)

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """The gradients, and delta where it is stored."""
        setting = self._setting(problem)
        return Gradients(
            *self._function("backward")(problem.do, problem.q, problem.k, problem.v, forward.saved, setting)
        )


# P is divided, rounded and kept, and Algorithm 3 sums delta over keys.
_KEPT = {"normalise": "before_cast", "p_from": "forward", "ds_from": "p_rounded", "delta_from": "p"}
_EVERY_BLOCK = {"normalise": "every_block"}

STANDARD = Algorithm("standard", "standard", form=_KEPT)
PAPER_FLASH = Algorithm("paper-flash", "paper", form=_EVERY_BLOCK, dropout=True)
PAPER_BLOCK_SPARSE = Algorithm("paper-block-sparse", "paper", form=_EVERY_BLOCK, blocks=True, dropout=True)
PAPER_VARLEN = Algorithm("paper-varlen", "paper", form=_EVERY_BLOCK, packed=True, dropout=True)
TWO_PASS = Algorithm("two-pass", "two_pass", delta=True)
RABE_STAATS = Algorithm("rabe-staats", "rabe_staats", backward=False)
