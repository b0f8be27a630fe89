"""The decoding kernels of `flashverify_kernels` as a subject: split-KV over contiguous or paged keys; forward only."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from flashverify.subjects.bundled_options import pair_terms, tree_mask
from flashverify.subjects.interface import Forward, Supports
from flashverify.subjects.split_keys import SplitKeys

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics import Form
    from flashverify.subjects.launches import Launch

__all__ = ["BUNDLED_DECODE", "BundledDecode"]

_SPLITS = (1, 2, 3, 7, 20, 130)
"""20 fill more than one step of the compiled merge at 256 channels, 130 of the interpreted one."""
_PAGES = (1, 16, 64, 128, 5)
_MOST_QUERIES = 24


class BundledDecode(SplitKeys):
    """`decode` of the kernel package."""

    def __init__(self, package: str = "flashverify_kernels", name: str = "bundled-decode") -> None:
        super().__init__(package, name)
        self.supports = Supports(
            precisions=("ieee", "tf32", "tf32x3"),
            masks=("causal", "window", "query_lengths", "key_lengths", "tree"),
            banded_trees=True,
            entry_trees=True,
            logits=("softcap", "alibi", "bias", "sink"),
            empty=True,
            scales=("positive", "zero", "negative"),
            page_sizes=_PAGES,
            max_seq_q=_MOST_QUERIES,
            backward=False,
            launch=(("n_splits", _SPLITS),),
            even_launches=False,
            also=self._refusal,
        )

    def _refusal(self, case: Case) -> str | None:
        mask, parts = case.mask, case.mask.parts()
        if "tree" in parts and parts & {"query_lengths", "key_lengths"}:
            return f"mask parts {sorted(parts)}: the nodes of a tree are the last keys"
        if "tree" in parts and (mask.causal == "top-left" or (mask.window is not None and mask.causal is None)):
            return f"causal={mask.causal}, window={mask.window} with a tree: its nodes are the last keys"
        return self._dtype_refusal(case)

    def form(self, case: Case) -> Form:
        """That of splits, with what biases and a softcap round."""
        return dataclasses.replace(super().form(case), kappa_bias=3.0, softcap="tanh")

    def _parts(self, case: Case) -> int:
        """A sink is one more."""
        return self._splits(case) + case.logits.sink

    def launches(self) -> list[Launch]:
        """What a GPU would compile, for `flashverify compile`."""
        from flashverify.subjects.decode_launches import decode_launches

        return decode_launches(self._package)

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        case, pages = problem.case, problem.pages
        k, v = (problem.k, problem.v) if pages is None else (pages.k, pages.v)
        if pages is None:
            k, v = self._view(case, k), self._view(case, v)
        o, lse = self._kernels.decode(
            self._view(case, problem.q),
            k,
            v,
            scale=problem.scale,
            causal=case.mask.causal,
            window=case.mask.window,
            query_lengths=problem.query_lengths,
            key_lengths=self._lengths(problem),
            softcap=problem.softcap,
            alibi_slopes=problem.slopes,
            bias=problem.bias if pages is None else self._bias(problem, pages.table.shape[1] * pages.k.shape[1]),
            sink=problem.sink,
            block_table=None if pages is None else pages.table,
            tree=None if case.mask.tree is None else self._tree(problem),
            n_splits=dict(case.launch).get("n_splits"),
            precision=case.precision,
            layout=case.storage.layout,
            return_lse=True,
            allow_interpreted_bf16=self._faithful(),
        )
        return Forward(self._view(case, o), lse)

    @staticmethod
    def _bias(problem: Problem, room: int) -> torch.Tensor | None:
        """The bias of the keys that the pages have room for, NaN behind those that there are; its axes are as they were."""
        bias = problem.bias
        if bias is None or bias.shape[3] == room:
            return bias
        wide = bias.new_full((*bias.shape[:3], room), float("nan"))
        wide[..., : bias.shape[3]] = bias
        return wide

    def _tree(self, problem: Problem) -> Any:
        """The tree; of cases with an odd seed as a bitmap of each head's own, whose words lie between words that hide no key."""
        case = problem.case
        tree = tree_mask(self._kernels, problem)
        if case.values.seed % 2 == 0:
            return tree
        bits = tree.bits.unflatten(0, (-1, 1, case.seq_q)) if tree.bits.numel() else tree.bits
        room = bits.new_full((case.batch, case.heads_q + 1, case.seq_q, bits.shape[-1] + 1), -1)
        own = room[:, : case.heads_q, :, :-1]
        own.copy_(bits)
        return self._kernels.Bitmap(own)

    def _config(self, case: Case) -> Any:
        given = {"rows": self._rows(case), "pairs": pair_terms(case), **self._tiles(case)}
        return self._module("decode_config").decode_config(**given)

    def _tiles(self, case: Case) -> dict[str, Any]:
        return {
            "d": case.dim_qk,
            "dv": case.dim_v,
            "dtype": self._dtype(case),
            "limit": self._module("runtime").shared_memory_limit(self._torch_device()),
            "interpreted": self._interpreted,
        }

    def _splits(self, case: Case) -> int:
        """The number given, or the one that the kernels choose."""
        given = dict(case.launch).get("n_splits")
        if given is not None:
            return given
        module, config = self._module("decode_config"), self._config(case)
        resident = module.resident_programs(
            config,
            self._torch_device(),
            d=case.dim_qk,
            dv=case.dim_v,
            dtype=self._dtype(case),
            pairs=pair_terms(case),
        )
        programs = case.batch * case.heads_kv * math.ceil(self._rows(case) / config.block_m)
        return int(module.decode_splits(keys=self._room(case), programs=programs, resident=resident))


BUNDLED_DECODE = BundledDecode()
