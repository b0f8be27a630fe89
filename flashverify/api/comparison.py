"""Every given output against the oracle and its bound."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from flashverify.api.layouts import index_in
from flashverify.errors import UsageError
from flashverify.judge.compare import compare_output

if TYPE_CHECKING:
    import torch

    from flashverify.api.arguments import Arguments
    from flashverify.judge.verdict import OutputStats
    from flashverify.numerics import Form, OutputBound
    from flashverify.truth import Truth

    Reference = tuple[str, str, torch.Tensor, OutputBound]

__all__ = ["Padding", "compare"]


@dataclass(frozen=True, slots=True)
class Padding:
    """What the outputs hold where there is nothing to compute.

    Args:
        padding: `written` or `undefined`, behind the declared lengths.
        empty_row_o: O of a row that sees no key.
        empty_row_lse: LSE of such a row.

    Raises:
        UsageError: `padding` is neither.
    """

    padding: str = "written"
    empty_row_o: float = 0.0
    empty_row_lse: float = -math.inf

    def __post_init__(self) -> None:
        if self.padding not in ("written", "undefined"):
            raise UsageError(f"padding={self.padding!r} is not accepted: 'written' or 'undefined'")


def compare(
    arguments: Arguments, outputs: dict[str, torch.Tensor], form: Form, rules: Padding, *, conditional: bool | None
) -> tuple[tuple[OutputStats, ...], list[str]]:
    """Statistics of every output, and a sentence for every failure; indices are those of the caller's layout.

    Args:
        arguments: the problem.
        outputs: by name, `[B, H, S, D]`, of the shapes that the problem gives them.
        form: the kernel's numerical form.
        rules: what holds where there is nothing to compute.
        conditional: the gradients are judged given O and LSE, too; None where it is not known whether the backward reads them.
    """
    from flashverify.checks.left_open import outside, undefined_elements
    from flashverify.subjects.interface import Contract
    from flashverify.truth import Truth

    problem, layout = arguments.problem, arguments.layout
    truth = Truth(arguments.inputs, problem.case.dtype, form)
    undefined = undefined_elements(problem, Contract(padding=rules.padding))  # type: ignore[arg-type]
    empty, beyond = truth.empty_rows, outside(problem)
    pinned: dict[str, tuple[torch.Tensor, float]] = {
        "o": (empty.unsqueeze(-1), rules.empty_row_o),
        "lse": (empty, rules.empty_row_lse),
        "delta": (empty, 0.0),
        "dq": (empty.unsqueeze(-1), 0.0),
    }
    pinned |= {name: (beyond[name], 0.0) for name in ("dk", "dv") if name in beyond}

    def judged(references: list[Reference]) -> _Judged:
        found = _Judged()
        for mode, name, value, bound in references:
            rows, fixed = pinned.get(name, (None, 0.0))
            if rows is not None and name in (
                "delta",
                "dq",
            ):  # of a row without keys whose dP overflows nothing is asked
                rows = rows & ~bound.exempt
            compared = compare_output(
                name,
                outputs[name],
                value,
                bound,
                mode=mode,
                pinned=rows,
                pinned_value=fixed,
                undefined=undefined.get(name),
                exact=functools.partial(truth.exact, name) if mode == "strict" else None,
            )
            index = index_in(name, compared.stats.index, layout)
            found.stats.append(msgspec.structs.replace(compared.stats, index=index))
            for verdict in compared.verdicts:
                found.modes.add(mode)
                place = f"{name}{list(index_in(name, verdict.index, layout))}"
                found.failures.append(place + verdict.message.removeprefix(f"{name}{list(verdict.index)}"))
        return found

    found = judged(_forward(truth, outputs))
    if truth.inputs.do is not None and outputs.keys() - {"o", "lse"}:
        tried: list[_Judged] = []
        for reading in truth.readings[: 1 if conditional else None]:
            tried.append(judged(_backward(reading, outputs, conditional=conditional is not False)))
            if not tried[-1].failures:
                break
        found = found + (tried[-1] if not tried[-1].failures else tried[0])
    if found.modes == {"conditional"}:
        found.failures.append(
            "end to end every output is within its bounds: a backward that does not read this O and LSE is judged with conditional=False"
        )
    return tuple(found.stats), found.failures


@dataclass(slots=True)
class _Judged:
    """Statistics, sentences about failures, and the modes in which something failed."""

    stats: list[OutputStats] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    modes: set[str] = field(default_factory=set)

    def __add__(self, other: _Judged) -> _Judged:
        return _Judged(self.stats + other.stats, self.failures + other.failures, self.modes | other.modes)


def _forward(truth: Truth, outputs: dict[str, torch.Tensor]) -> list[Reference]:
    """(mode, output, value, bound) of what is asked of O and LSE."""
    pairs = [("end-to-end", truth.forward()), ("strict", truth.strict())]
    return [(mode, name, *pair) for mode, found in pairs for name, pair in found.items() if name in outputs]


def _backward(truth: Truth, outputs: dict[str, torch.Tensor], *, conditional: bool) -> list[Reference]:
    """The same of the gradients, for one reading of the form."""
    import torch

    pairs = [("end-to-end", truth.backward())]
    o, lse = outputs.get("o"), outputs.get("lse")
    if conditional and o is not None and lse is not None:
        seen = ~truth.empty_rows
        if bool(torch.isfinite(o[seen]).all() & torch.isfinite(lse[seen]).all()):
            given, strict = truth.given(o, lse)
            pairs += [("conditional", given), ("strict", strict)]
    return [(mode, name, *pair) for mode, found in pairs for name, pair in found.items() if name in outputs]
