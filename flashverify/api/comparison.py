"""Every given output against the oracle and its bound."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
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
    arguments: Arguments, outputs: dict[str, torch.Tensor], form: Form, rules: Padding, *, conditional: bool
) -> tuple[tuple[OutputStats, ...], list[str]]:
    """Statistics of every output, and a sentence for every failure; indices are those of the caller's layout.

    Args:
        arguments: the problem.
        outputs: by name, `[B, H, S, D]`, of the shapes that the problem gives them.
        form: the kernel's numerical form.
        rules: what holds where there is nothing to compute.
        conditional: judge the gradients given O and LSE, too.
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
    stats: list[OutputStats] = []
    failures: list[str] = []
    modes: set[str] = set()
    for mode, name, value, bound in _references(truth, outputs, conditional=conditional):
        rows, fixed = pinned.get(name, (None, 0.0))
        if rows is not None and name == "dq":  # of a row without keys whose dP overflows nothing is asked
            rows = rows & ~bound.exempt
        found = compare_output(
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
        index = index_in(name, found.stats.index, layout)
        stats.append(msgspec.structs.replace(found.stats, index=index))
        for verdict in found.verdicts:
            modes.add(mode)
            place = f"{name}{list(index_in(name, verdict.index, layout))}"
            failures.append(place + verdict.message.removeprefix(f"{name}{list(verdict.index)}"))
    if modes == {"conditional"}:
        failures.append(
            "end to end every output is within its bounds: a backward that does not read this O and LSE is judged with conditional=False"
        )
    return tuple(stats), failures


def _references(
    truth: Truth, outputs: dict[str, torch.Tensor], *, conditional: bool
) -> list[tuple[str, str, torch.Tensor, OutputBound]]:
    """(mode, output, value, bound) of everything that is asked of the given outputs."""
    import torch

    pairs = [("end-to-end", truth.forward()), ("strict", truth.strict())]
    if truth.inputs.do is not None and outputs.keys() - {"o", "lse"}:
        pairs.append(("end-to-end", truth.backward()))
        o, lse = outputs.get("o"), outputs.get("lse")
        if conditional and o is not None and lse is not None:
            seen = ~truth.empty_rows
            if bool(torch.isfinite(o[seen]).all() & torch.isfinite(lse[seen]).all()):
                given, strict = truth.given(o, lse)
                pairs += [("conditional", given), ("strict", strict)]
    return [(mode, name, *pair) for mode, found in pairs for name, pair in found.items() if name in outputs]
