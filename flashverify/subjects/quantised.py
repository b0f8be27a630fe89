"""The kernels of quantised K and V of `flashverify_kernels` as subjects: decoding and prefill; forward only."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.subjects.decode import BundledDecode
from flashverify.subjects.interface import Contract, Forward, Supports
from flashverify.subjects.split_keys import SplitKeys

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics import Form

__all__ = ["BUNDLED_QUANTISED", "BUNDLED_QUANTISED_DECODE", "BundledQuantised", "BundledQuantisedDecode"]

_CODES = ("e4m3", "e5m2", "int8", "int4")
_MODES = ("folded", "operand", "fp8")
_FOLDED, _FP8 = 0, 2
_SPLITS = (1, 2, 3, 7, 20)
_PAGES = (1, 16, 64, 5)
_MOST_QUERIES = 24
_FACTOR = 256.0


class BundledQuantisedDecode(BundledDecode):
    """`quantised_decode` of the kernel package. The launch value `mode` numbers its ways from code to number."""

    _decode = True

    def __init__(self, package: str = "flashverify_kernels", name: str = "bundled-quantised-decode") -> None:
        super().__init__(package, name)
        self.supports = Supports(
            **self._declared(),
            max_seq_q=_MOST_QUERIES,
            page_sizes=_PAGES,
            launch=(("mode", tuple(range(len(_MODES)))), ("n_splits", _SPLITS)),
        )

    def _declared(self) -> dict[str, Any]:
        return {
            "precisions": ("ieee", "tf32", "tf32x3"),
            "masks": ("causal", "window", "key_lengths"),
            "empty": True,
            "scales": ("positive", "zero", "negative"),
            "quantised": _CODES,
            "zero_points": True,
            "quantised_q": ("values", "codes"),
            "backward": False,
            "even_launches": False,
            "also": self._refusal,
        }

    def _refusal(self, case: Case) -> str | None:
        how = case.quantised
        narrow = how is not None and (how.codes != "e4m3" or how.scales not in ("tensor", "head"))
        if how is not None and narrow and self._mode(case) == _MODES[_FP8]:
            return f"mode={_FP8} with quantised={how.codes}/{how.scales}: fp8 products take e4m3 and one scale a head"
        return self._dtype_refusal(case)

    @staticmethod
    def _mode(case: Case) -> str:
        return _MODES[dict(case.launch).get("mode", _FOLDED)]

    def _last(self, case: Case) -> bool:
        """Whether the scale of V multiplies the result: one serves all keys of a head."""
        how, paged = case.quantised, case.storage.page_size is not None
        if how is not None and paged and how.scales_in_pages:
            return False
        alone = how is not None and -(-case.seq_k // how.keys_per_scale(case.seq_k)) <= 1
        return self._mode(case) != "operand" and alone

    def _config(self, case: Case) -> Any:
        given = {"codes": self._codes(case), **self._tiles(case)}
        return self._module("quantised.constants").quantised_decode_config(rows=self._rows(case), **given)

    @staticmethod
    def _codes(case: Case) -> str:
        return "" if case.quantised is None else case.quantised.codes

    def form(self, case: Case) -> Form:
        """That of splits, with what mode and scales say of codes and weights."""
        fp8 = self._mode(case) == "fp8"
        splits = SplitKeys.form(self, case)
        return dataclasses.replace(
            splits,
            dequantised="operand" if self._mode(case) == "operand" else "folded",
            v_scale_last=self._last(case),
            p_dtype="e4m3" if fp8 else None,
            p_factor=_FACTOR if fp8 else 1.0,
            products="fp8_pv" if fp8 else "input",
            fp8_chain=splits.block_n if fp8 else None,
        )

    def launches(self) -> list[Any]:
        """What a GPU would compile, for `flashverify compile`."""
        from flashverify.subjects.quantised_launches import quantised_launches

        return quantised_launches(self._package, decode=self._decode)

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        return self._forward(problem, "quantised_decode", n_splits=dict(problem.case.launch).get("n_splits"))

    def _forward(self, problem: Problem, name: str, **more: Any) -> Forward:
        case, view, module = problem.case, problem.quantised(as_bytes=True), self._module("quantised")
        pages = view.pages

        def given(of: str) -> Any:
            inside = pages is not None and getattr(pages, f"{of}_scale") is not None
            return module.Quantised(
                codes=getattr(view if pages is None else pages, of),
                scale=getattr(pages if inside else view, f"{of}_scale"),
                zero=getattr(pages if inside else view, f"{of}_zero"),
                format=view.codes,
                keys_per_scale=view.keys_per_scale,
                paged=pages is not None,
                scales_in_pages=inside,
            )

        q: Any = view.q
        if view.q_scale is not None:
            shared = {"scale": view.q_scale, "rows_per_scale": view.rows_per_scale}
            q = module.QuantisedQueries(codes=view.q, dtype=view.dtype, **shared)
        o, lse = getattr(module, name)(
            q,
            given("k"),
            given("v"),
            block_table=None if pages is None else pages.table,
            scale=problem.scale,
            causal=case.mask.causal,
            window=case.mask.window,
            key_lengths=self._lengths(problem),
            mode=self._mode(case),
            precision=case.precision,
            allow_interpreted_bf16=self._faithful(),
            **more,
        )
        return Forward(o, lse)


class BundledQuantised(BundledQuantisedDecode):
    """`quantised_attention` of the kernel package."""

    contract = Contract(lse_base="e", deterministic=True, batch_invariant=True)
    _decode = False

    def __init__(self, package: str = "flashverify_kernels", name: str = "bundled-quantised") -> None:
        super().__init__(package, name)
        self.supports = Supports(**self._declared(), launch=(("mode", tuple(range(len(_MODES)))),))

    def _config(self, case: Case) -> Any:
        given = {"codes": self._codes(case), **self._tiles(case)}
        return self._module("quantised.constants").prefill_config(**given)

    def _splits(self, case: Case) -> int:  # noqa: ARG002
        return 1

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        return self._forward(problem, "quantised_attention")


BUNDLED_QUANTISED_DECODE = BundledQuantisedDecode()
BUNDLED_QUANTISED = BundledQuantised()
