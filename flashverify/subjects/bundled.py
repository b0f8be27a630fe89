"""The Triton kernels of `flashverify_kernels` as a subject: compiled on a GPU, interpreted without one."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from flashverify.formats import FORMATS
from flashverify.outputs import BACKWARD, INPUT_GRADIENTS, output
from flashverify.subjects.bundled_hopper import hopper_capability, hopper_is_drawn, may_be_asked
from flashverify.subjects.bundled_options import (
    LOGITS,
    MASKS,
    block_size,
    mask_kinds,
    mask_options,
    modifier_options,
    pair_terms,
    whole_bias_gradient,
    whole_tensors,
)
from flashverify.subjects.evidence import evidence_on, interpreted_as
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics import Form
    from flashverify.subjects.launches import Launch

__all__ = ["BUNDLED", "Bundled"]

_OWN = "flashverify_kernels"
_AXES = (0, 2, 1, 3)  # its own inverse: bhsd <-> bshd
_BLOCKS = (16, 32, 64, 128)
_KINDS = ("forward", "dq", "dkdv")


class Bundled:
    """`forward` and `backward` of the kernel package, judged on the natural LSE that its public function returns.

    Args:
        package: name of the kernel package; a mutant is one of the same shape.
        name: in reports.
        hopper: whether its kernels for Hopper GPUs may be taken; by default not those of a mutant, as they would stand in for the defect.
    """

    contract = Contract(
        lse_base="e",
        deterministic=True,
        batch_invariant=True,
        gradients=frozenset(BACKWARD),
        modifiers_saturate=True,
        reads_outputs=True,
    )

    def __init__(self, package: str = _OWN, name: str = "bundled", *, hopper: bool | None = None) -> None:
        self.name = name
        self._package = package
        self._hopper = package == _OWN if hopper is None else hopper

    @functools.cached_property
    def supports(self) -> Supports:
        """The cases it accepts; on a Hopper GPU `hopper` is a launch parameter: whether the kernels for it are asked for."""
        hopper = (("hopper", (0, 1)),) if self._hopper and hopper_is_drawn(self._module) else ()
        return Supports(
            precisions=("ieee", "tf32", "tf32x3"),
            masks=MASKS,
            entry_trees=True,
            banded_trees=True,
            logits=LOGITS,
            huge_modifiers=True,
            dropout=True,
            empty=True,
            scales=("positive", "zero", "negative"),
            dlse=True,
            strided=True,
            launch=(*hopper, ("block_m", _BLOCKS), ("block_n", _BLOCKS)),
            even_launches=False,
            also=self._refusal,
        )

    @functools.cached_property
    def _kernels(self) -> Any:
        if not self._hopper:
            self._module("hopper").HOPPER = ()
        return importlib.import_module(self._package)

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"{self._package}.{name}")

    @functools.cached_property
    def _interpreted(self) -> bool:
        return bool(self._module("runtime").INTERPRETED)

    def _refusal(self, case: Case) -> str | None:
        """Why this process cannot run `case`, or None."""
        reason = None
        if case.launch and {"block_m", "block_n"} != {name for name, _ in case.launch} - {"hopper"}:
            reason = f"launch={case.launch}: block_m and block_n belong together"
        reason = reason or self._dtype_refusal(case)
        if reason is None and case.launch:
            dims: dict[str, Any] = {"d": case.dim_qk, "dv": case.dim_v, "dtype": self._dtype(case)}
            dims |= {"blocks": block_size(case), "pairs": pair_terms(case)}
            for kind in _KINDS:
                config = getattr(self._configs(case), kind)
                reason = reason or self._kernels.config_error(kind, config, **dims)
        return reason

    def _dtype_refusal(self, case: Case) -> str | None:
        """Why this process cannot compute in the dtype of `case`, or None."""
        return None if self._faithful() else self._kernels.supported(self._dtype(case))

    def _configs(self, case: Case) -> Any:
        """The launch parameters of the case, the same for every kernel."""
        given = {name: bool(value) if name == "hopper" else value for name, value in case.launch}
        config = self._kernels.LaunchConfig(**given, descriptors=True)
        return self._kernels.Configs(**dict.fromkeys(_KINDS, config))

    def form(self, case: Case) -> Form:
        """fl(scale * log2 e) and its product with the dot are the two roundings of a logit; the exponent is a bare subtraction.

        Windows and live blocks begin at multiples of a tile of keys, so tiles lie on one grid under every mask; but each packed
        sequence has a grid of its own.
        """
        from flashverify.numerics import Form

        return Form(
            gap_c=1.0,
            kappa=2.0,
            kappa_bias=3.0,
            softcap="tanh",
            softcap_slope="product",
            dot=case.precision,
            block_n=self._block_n(case),
            key_order="unknown" if case.mask.packed else "ascending",
            masked_ds=True,
            stored_delta="minus_dlse",
            architecture=self._architecture(),
        )

    def device(self) -> str:
        """`cuda` where the kernels are compiled, `cpu` where they are interpreted."""
        return "cpu" if self._interpreted else "cuda"

    def evidence(self) -> str:
        """The GPU, or the interpreter."""
        return evidence_on(self.device(), triton=True)

    def launches(self) -> list[Launch]:
        """What a GPU would compile, for `flashverify compile`."""
        from flashverify.subjects.bundled_launches import bundled_launches

        return bundled_launches(self._package)

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        options = self._options(problem)
        q, k, v = (self._view(problem.case, x) for x in (problem.q, problem.k, problem.v))
        result = self._kernels.forward(q, k, v, options)
        return Forward(self._view(problem.case, result.o), result.lse_natural(), (q, k, v, result, options))

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """The gradients; delta as it is stored, with dLSE folded into it."""
        return Gradients(**self._viewed(problem.case, self._backward(problem, forward), BACKWARD))

    def backward_of(self, problem: Problem, forward: Forward, wanted: frozenset[str]) -> dict[str, torch.Tensor]:
        """Some of the gradients, the others not asked for."""
        found = self._backward(problem, forward, needs=tuple(name in wanted for name in INPUT_GRADIENTS))
        return self._viewed(problem.case, found, INPUT_GRADIENTS)

    def _viewed(self, case: Case, found: Any, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
        """The gradients that there are; those of q, k and v as `[B, H, S, D]` views."""
        given = {name: x for name in names if (x := getattr(found, name)) is not None}
        return {name: self._view(case, x) if output(name).channels else x for name, x in given.items()}

    def _backward(self, problem: Problem, forward: Forward, **options: Any) -> Any:
        q, k, v, result, saved = forward.saved
        assert problem.do is not None
        do = self._view(problem.case, problem.do)
        found = self._kernels.backward(do, q, k, v, result.o, result.lse2, saved, dlse=problem.dlse, **options)
        if found.dbias is None or problem.case.mask.packed is None:
            return found
        return found._replace(dbias=whole_bias_gradient(problem, found.dbias))

    def _options(self, problem: Problem) -> Any:
        case = problem.case
        return self._kernels.Options(
            scale=problem.scale,
            precision=case.precision,
            layout=case.storage.layout,
            config=self._configs(case) if case.launch else None,
            allow_interpreted_bf16=self._faithful(),
            **mask_options(self._kernels, problem),
            **modifier_options(self._kernels, problem),
        )

    @staticmethod
    def _view(case: Case, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.permute(_AXES) if case.storage.layout == "bshd" else tensor

    def _block_n(self, case: Case, rows: int | None = None) -> int:
        """Keys of a tile; `rows` is the number of queries where that is not the case's."""
        if case.launch:
            return dict(case.launch)["block_n"]
        config = self._kernels.launch_config(
            "forward",
            d=case.dim_qk,
            dv=case.dim_v,
            sq=case.longest_q if rows is None else rows,
            dtype=self._dtype(case),
            mask=mask_kinds(case),
            blocks=block_size(case),
            pairs=pair_terms(case),
            whole=whole_tensors(case),
            packed=case.mask.packed is not None,
            capability=self._capability(),
            hopper=may_be_asked(case),
            interpreted=self._interpreted,
        )
        return int(config.block_n)

    def _capability(self) -> tuple[int, int] | None:
        """That of the GPU where its own kernels may be taken."""
        return hopper_capability(self._module) if self._hopper else None

    @staticmethod
    def _faithful() -> bool:
        """Whether this process interprets with the semantics of compiled code; plain Triton's interpreter has bf16 wrong."""
        loaded = sys.modules.get("flashverify.interpreter.session")
        return loaded is not None and loaded.active() is not None

    @staticmethod
    def _dtype(case: Case) -> torch.dtype:
        return FORMATS[case.dtype].dtype

    def _architecture(self) -> str:
        """Of the GPU, or the one that the interpreter follows: `ieee` where a dot is a chain of fp32 operations."""
        if self._interpreted:
            return interpreted_as()[1]
        import torch

        return "sm_" + "".join(map(str, torch.cuda.get_device_capability()))


BUNDLED = Bundled()
