"""`kernel_subject`: a Triton kernel as its file has it, with its grid, its arguments and its outputs, as a subject."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flashverify.case.wiring.returned import LSE_LAYOUTS, O_LAYOUTS
from flashverify.case.wiring.rows import tokens
from flashverify.errors import UsageError
from flashverify.launching.autotuning import choices
from flashverify.launching.decorators import (
    autotuner_of,
    computed_values,
    defaults_of,
    name_of,
    parameters_of,
    require_kernel,
)
from flashverify.outputs import FORWARD
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Forward, Supports

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.subjects.function import FunctionSubject
    from flashverify.subjects.hand_written import Backward, HandWrittenSubject

__all__ = ["kernel_subject"]

_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim"})
"""What a launch takes beside the parameters of the kernel."""

Grid = tuple[int, ...] | Callable[["Problem", Mapping[str, Any]], tuple[int, ...]]
Arguments = Callable[["Problem", SimpleNamespace], Mapping[str, Any] | Sequence[Any]]
LaunchValues = Mapping[str, Sequence[int]] | Sequence[Mapping[str, int]]


def kernel_subject(
    kernel: Any,
    *,
    grid: Grid,
    arguments: Arguments,
    outputs: Mapping[str, str] | None = None,
    launch: LaunchValues = (),
    name: str | None = None,
    supports: Supports | None = None,
    contract: Contract | None = None,
    form: Form | Callable[[Case], Form] | None = None,
    device: str = "auto",
    backward: Backward | None = None,
    pretend_cuda: tuple[int, int] | None = None,
) -> FunctionSubject | HandWrittenSubject:
    """Makes a subject of a Triton kernel as its file has it, under @triton.autotune and @triton.heuristics or not.

        mine = kernel_subject(
            _fwd_kernel,
            grid=lambda p, meta: (triton.cdiv(p.case.seq_q, meta["BLOCK_M"]), p.case.batch * p.case.heads_q),
            arguments=lambda p, out: {"q": p.q, "k": p.k, "v": p.v, "o": out.o, "lse": out.lse, "keys": p.case.seq_k},
            outputs={"o": "bhsd", "lse": "bhs"},
            launch={"BLOCK_M": (64, 32, 128), "BLOCK_N": (64, 32)},
            supports=Supports(dtypes=("fp16",), contiguous=True, equal_dims=True),
        )

    Args:
        kernel: decorated with @triton.jit.
        grid: of the launch, or a function of the problem and of the values that the grid of a launch gets by name, launch values among
            them.
        arguments: a function of the problem and of the outputs, `out.o` and `out.lse`: a mapping by the names of the kernel's parameters,
            or values in their order. Launch values are left out. A tensor that is neither input nor output is allocated here.
        outputs: the layouts of what the kernel writes, by the names of `p.outputs`: `o` is `bhsd`, `bshd`, `thd` or `htd`, `lse` is
            `bhs`, `bsh`, `th` or `ht`. They are allocated without a content, contiguous, in the dtype of q and in fp32. By default `o` is
            `bhsd` alone. An lse is promised where it is named, in base e unless the contract says otherwise.
        launch: launch values of a kernel that is not autotuned: a mapping of names to their values, or a list of whole configurations. The
            first value, or the first configuration, is the default one; cases are drawn with each. Those of an autotuned kernel are its
            configurations, see `subject(autotuned=...)`.
        name: in reports; the kernel's name by default.
        supports: the cases it accepts.
        contract: its promises.
        form: its numerical form, as `subject` takes it.
        device: `auto`, `cpu` or `cuda`.
        backward: a backward written by hand, as `subject` takes it; `saved` is the namespace of the outputs. None promises no gradients.
        pretend_cuda: as `subject` takes it.

    Returns:
        The subject.

    Raises:
        UsageError: the kernel is none, an output or its layout is unknown, or a launch value is no parameter.
    """
    require_kernel("kernel", kernel)
    layouts = _layouts(outputs)
    defaults, declared = _launch_values(kernel, launch)
    promised = contract or Contract(lse_base="e" if "lse" in layouts else None)
    if backward is None:
        promised = dataclasses.replace(promised, gradients=frozenset())
    accepted = dataclasses.replace(supports or Supports(), **declared)
    called = name or name_of(kernel)
    tuned = choices((kernel,)) if autotuner_of(kernel) is not None else {}

    def forward(p: Problem) -> Forward:
        out = SimpleNamespace(**{each: _allocated(p, each, layout) for each, layout in layouts.items()})
        given = _named(called, kernel, arguments(p, out))
        meta = defaults if tuned else defaults | dict(p.case.launch)
        _require_complete(called, kernel, {*given, *meta})
        kernel[grid if isinstance(grid, tuple) else lambda found: grid(p, found)](**given, **meta)
        if "lse" not in layouts:
            return Forward(p.outputs(out.o, None, layouts["o"]), None, out)
        o, lse = p.outputs(out.o, out.lse, layouts["o"], layouts["lse"])
        return Forward(o, lse, out)

    declare: Any = subject(
        name=called,
        supports=accepted,
        contract=promised,
        form=form,
        device=device,
        backward=backward,
        autotuned=(kernel,) if tuned else (),
        pretend_cuda=pretend_cuda,
    )
    made: FunctionSubject | HandWrittenSubject = declare(forward)
    return made


def _layouts(outputs: Mapping[str, str] | None) -> dict[str, str]:
    """The layouts of the outputs by name, checked."""
    found = {"o": "bhsd"} if outputs is None else dict(outputs)
    known = dict(zip(FORWARD, (O_LAYOUTS, LSE_LAYOUTS), strict=True))
    if "o" not in found or any(layout not in known.get(name, ()) for name, layout in found.items()):
        accepted = "; ".join(f"{name!r}: one of {', '.join(layouts)}" for name, layouts in known.items())
        raise UsageError(f"outputs={outputs!r} is not accepted: a mapping with 'o': {accepted}")
    return found


def _launch_values(kernel: Any, launch: LaunchValues) -> tuple[dict[str, int], dict[str, Any]]:
    """The default launch values, and the fields of `Supports` that hold all of them."""
    if not launch:
        return {}, {}
    accepted = "a mapping of names of the kernel's parameters to lists of integers, or a list of mappings to integers"
    if autotuner_of(kernel) is not None:
        raise UsageError(f"launch={launch!r} is not accepted: {name_of(kernel)} is autotuned and has configurations")
    names = set(launch) if isinstance(launch, Mapping) else {name for config in launch for name in config}
    if strange := sorted(names - {*parameters_of(kernel), *_OPTIONS}):
        raise UsageError(f"launch={launch!r} is not accepted: {', '.join(strange)} is no parameter; {accepted}")
    if not isinstance(launch, Mapping):
        return dict(launch[0]), {"launch_configs": tuple(launch)}
    if not all(isinstance(values, tuple | list) and values for values in launch.values()):
        raise UsageError(f"launch={launch!r} is not accepted: {accepted}")
    first = {name: values[0] for name, values in launch.items()}
    return first, {"launch": tuple((name, tuple(values)) for name, values in launch.items())}


def _named(called: str, kernel: Any, given: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """The arguments by the names of parameters."""
    if isinstance(given, Mapping):
        return dict(given)
    names = parameters_of(kernel)
    if len(given) > len(names):
        raise UsageError(
            f"arguments of {called!r} are not accepted: {len(given)} values for {len(names)} parameters: {', '.join(names)}"
        )
    return dict(zip(names, given, strict=False))


def _require_complete(called: str, kernel: Any, given: set[str]) -> None:
    """Checks that a launch has every parameter, and nothing else.

    Raises:
        UsageError: it has not.
    """
    tuner = autotuner_of(kernel)
    tuned = set(tuner.configs[0].kwargs) if tuner is not None else set()
    names = set(parameters_of(kernel))
    missing = names - given - tuned - computed_values(kernel) - defaults_of(kernel)
    strange = given - names - _OPTIONS
    if missing or strange:
        ordered = [name for name in parameters_of(kernel) if name in missing]
        text = [f"missing: {', '.join(ordered)}"] * bool(ordered) + [f"unknown: {', '.join(sorted(strange))}"] * bool(
            strange
        )
        raise UsageError(
            f"arguments of {called!r} are not accepted: {'; '.join(text)}; it takes {', '.join(parameters_of(kernel))}"
        )


def _allocated(p: Problem, name: str, layout: str) -> Any:
    """An output without a content, contiguous."""
    import torch

    case = p.case
    sizes = {"b": case.batch, "h": case.heads_q, "s": case.seq_q, "d": case.dim_v, "t": tokens(p, "row")}
    dtype = torch.float32 if name == "lse" else p.q.dtype
    return torch.empty([sizes[axis] for axis in layout], dtype=dtype, device=p.q.device)
