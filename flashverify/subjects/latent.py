"""Attention over a latent cache by the kernels of `flashverify_kernels`: K and V in one buffer, contiguous or paged; forward only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.subjects.interface import Forward, Supports
from flashverify.subjects.split_keys import SplitKeys

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.subjects.launches import Launch

__all__ = ["BUNDLED_LATENT", "BundledLatent"]

_SPLITS = (1, 2, 3, 7)
_PAGES = (1, 16, 64, 5)
_DIMS = (
    *((8, 8), (16, 8), (24, 16), (16, 16), (24, 8), (40, 32), (32, 16), (72, 64), (96, 64), (64, 64)),
    *((40, 24), (136, 128), (192, 128), (320, 256), (288, 272), (576, 512), (576, 512)),
)
"""(channels of K, channels of V): those of DeepSeek are 576 and 512."""


class BundledLatent(SplitKeys):
    """`latent_attention` of the kernel package."""

    def __init__(self, package: str = "flashverify_kernels", name: str = "bundled-latent") -> None:
        super().__init__(package, name)
        self.supports = Supports(
            precisions=("ieee", "tf32", "tf32x3"),
            masks=("causal", "window", "key_lengths"),
            empty=True,
            scales=("positive", "zero", "negative"),
            page_sizes=_PAGES,
            kv=("shared",),
            dim_pairs=_DIMS,
            heads_kv=(1,),
            backward=False,
            launch=(("n_splits", _SPLITS),),
            even_launches=False,
            also=self._dtype_refusal,
        )

    def launches(self) -> list[Launch]:
        """What a GPU would compile, for `flashverify compile`."""
        from flashverify.subjects.listed_launches import latent_launches

        return latent_launches(self._package)

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        case, pages = problem.case, problem.pages
        o, lse = self._kernels.latent_attention(
            self._view(case, problem.q),
            self._view(case, problem.k) if pages is None else pages.k,
            dim_v=case.dim_v,
            scale=case.scale,
            causal=case.mask.causal,
            window=case.mask.window,
            key_lengths=self._lengths(problem),
            block_table=None if pages is None else pages.table,
            n_splits=dict(case.launch).get("n_splits"),
            precision=case.precision,
            layout=case.storage.layout,
            return_lse=True,
            allow_interpreted_bf16=self._faithful(),
        )
        return Forward(self._view(case, o), lse)

    def _config(self, case: Case) -> Any:
        import torch

        return self._module("latent_config").latent_config(
            dv=case.dim_v,
            rope=case.dim_qk - case.dim_v,
            dtype=self._dtype(case),
            rows=self._rows(case),
            capability=None if self._interpreted else torch.cuda.get_device_capability(),
            interpreted=self._interpreted,
        )

    def _splits(self, case: Case) -> int:
        """The number given, or the one that the kernels choose."""
        programs = case.batch * case.heads_kv * -(-self._rows(case) // self._config(case).block_m)
        given = dict(case.launch).get("n_splits")
        found = self._module("latent_validation").latent_splits(given, self._torch_device(), self._room(case), programs)
        return int(found)


BUNDLED_LATENT = BundledLatent()
