"""A formula of dS or of the weights of dV that differs from the declared one in some steps, coefficients and places."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.dictionary import DECLARED
from flashverify.diagnosis.readings.backward.numbers import ONE
from flashverify.diagnosis.readings.backward.pair_places import expanded
from flashverify.diagnosis.readings.backward.weight_variants import CAPPED

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.numbers import Number
    from flashverify.diagnosis.readings.backward.pair_places import Place
    from flashverify.diagnosis.readings.backward.variants import Option

__all__ = ["KEPT", "OPERANDS", "STEPS_OF", "Columns", "Formula", "option_value"]

KEPT = "variants of steps"
"""Of the memo of a scene: its steps, and the values of variants by step and words."""
STEPS_OF = {
    "dq": ("weights", "dp", "rows", "slope", "key operand", "counts"),
    "dk": ("weights", "dp", "rows", "slope", "row operand", "counts"),
    "dv": ("weights", "kept", "row operand", "counts"),
    "dbias": ("weights", "dp", "rows", "slope", "counts"),
}
"""The steps that each reading shows."""
_SLACK = 4.0
"""Times the bounds of what is declared: other weights are exponentials of larger numbers."""
_NOT_KEPT, _KEPT_TEXT = " without what is declared of dropout", {CAPPED: " cap'"}
"""What the weights of dV are multiplied by, behind P, where that is not as declared."""
OPERANDS = {"dq": "key operand", "dk": "row operand", "dv": "row operand"}


class Columns(NamedTuple):
    """The terms of a formula before coefficients: values and magnitudes `[B, Hq, Sq, Sk]`, and what all are multiplied by at last."""

    values: list[Tensor]
    sizes: list[Tensor]
    slope: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Formula:
    """`slope * P (a dP - b delta + c dLSE)` of dS, or `a P kept` of the weights of dV.

    Attributes:
        output: whose reading it is about.
        changed: steps that are not as declared.
        numbers: a, b, c; or a.
        place: where it holds; the declared one holds elsewhere. None for everywhere.
    """

    output: str
    changed: dict[str, Option] = field(default_factory=dict)
    numbers: tuple[Number, ...] = ()
    place: Place | None = None

    @property
    def cost(self) -> float:
        """How far it is from what is declared."""
        same = len({each.words for each in self.numbers}) == 1
        numbers = self.numbers[0].cost if same else sum(each.cost for each in self.numbers)
        return len(self.changed) + numbers

    @property
    def by_value(self) -> bool:
        """Whether a number in the code stands beside values."""
        return any(each.by_value for each in self.changed.values()) or (self.place is not None and self.place.by_value)

    def option(self, step: str) -> Option:
        """What stands for a step."""
        return self.changed.get(step, DECLARED[step])

    def columns(
        self, scene: Scene, s: Steps, at: Tensor | None = None, picks: dict[str, Tensor] | None = None
    ) -> Columns | None:
        """The terms on a case; None where the case has not what a step is about.

        Args:
            scene: the case.
            s: its declared steps.
            at: bool, the pairs that are asked for; None for all.
            picks: what other formulas took of the declared steps at these pairs, to which this one adds; None to keep nothing.
        """
        found = {name: option_value(name, self.option(name), scene, s) for name in STEPS_OF[self.output]}
        if any(found[name] is None for name in self.changed):
            return None

        if at is not None and picks is not None and "" not in picks:
            picks[""] = at.nonzero()
        cells = None if at is None else at.nonzero(as_tuple=True) if picks is None else picks[""].unbind(-1)

        def pick(x: Tensor, name: str = "") -> Tensor:
            if at is None or cells is None:
                return x
            if picks is None or not name or name in self.changed:
                return x.expand(at.shape)[cells]
            if name not in picks:
                picks[name] = x.expand(at.shape)[cells]
            return picks[name]

        p_axes = s.p.dim()
        p, declared, counts = pick(found["weights"], "weights"), pick(s.p, "p"), pick(found["counts"], "counts")
        size = torch.maximum(p.abs(), declared) * counts.abs().clamp(min=1.0)
        p = p * counts
        if self.output == "dv":
            kept = pick(found["kept"], "kept")
            return Columns([p * kept], [size * torch.maximum(kept, pick(s.kept, "declared kept"))], torch.ones_like(p))
        rows = [x.unsqueeze(-1) if x.dim() == p_axes - 1 else x for x in found["rows"]]
        named = ("", "") if "rows" in self.changed else ("delta", "dlse")
        delta, dlse = (pick(x, name) for x, name in zip(rows, named, strict=True))
        dp = pick(found["dp"], "dp")
        delta_size = torch.maximum(pick(s.delta_size.unsqueeze(-1), "delta size"), delta.abs())
        values = [p * dp, -p * delta, p * dlse]
        sizes = [size * torch.maximum(pick(s.dp_size, "dp size"), dp.abs()), size * delta_size, size * dlse.abs()]
        undone = self.output == "dbias" and "slope" not in self.changed
        return Columns(values, sizes, torch.ones_like(p) if undone else pick(found["slope"], "slope"))

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where the case has not what it is about."""
        if scene.inputs.do is None or not scene.case.seq_q or not scene.case.seq_k:
            return None
        where = None if self.place is None else expanded(self.place, scene)
        if where is not None and not bool(where.any()):
            return None
        operand = OPERANDS.get(self.output)
        read = None if operand is None or operand not in self.changed else self.changed[operand].value
        if read is not None and read(scene, None) is None:  # type: ignore[arg-type]
            return None

        def steps(s: Steps) -> Steps:
            columns = self.columns(scene, s)
            if columns is None:
                return s
            total = torch.zeros_like(s.p)
            for number, x in zip(self.numbers, columns.values, strict=True):
                total = total + number.of(scene) * x
            slope = columns.slope
            if self.output == "dv":
                if where is not None:
                    total = torch.where(where, total, s.p * s.kept)
                found = replace(s, p_dv=total, kept=torch.ones_like(s.kept))
                return found if read is None else replace(found, dv_rows=read(scene, s)(s.do))
            declared = torch.ones_like(slope) if self.output == "dbias" else s.slope
            if where is not None:
                total, slope = torch.where(where, total, s.formula()), torch.where(where, slope, declared)
            counts = self.option("counts").value(scene, s)
            size = torch.maximum(self.option("weights").value(scene, s).abs(), s.p) * counts.abs().clamp(min=1.0)
            if self.output == "dbias":
                return replace(s, p=size, ds=s.formula(), dbias_ds=total * slope)
            found = replace(s, p=size, ds=total, slope=slope if "slope" in self.changed else s.slope)
            if read is None:
                return found
            moved = read(scene, s)(s.k if self.output == "dq" else s.q)
            return replace(found, dq_keys=moved) if self.output == "dq" else replace(found, dk_rows=moved)

        return Alternative(steps=steps, finish=_slack)

    def differences(self) -> list[str]:
        """What is not as declared, a sentence each without its full stop."""
        found = [each.words for step, each in self.changed.items() if "operand" not in step]
        names = ("P",) if self.output == "dv" else ("dP", "delta", "dLSE")
        words = [each.words for each in self.numbers]
        if len(set(words)) == 1:
            whole = "P" if self.output == "dv" else "dS"
            return found + _factor(whole, self.numbers[0])
        for name, number in zip(names, self.numbers, strict=True):
            found += _factor(name, number)
        return found

    def text(self, dlse: bool) -> str:
        """The formula in letters, with dLSE or without."""
        weights = "P'" if "weights" in self.changed else "P"
        kept = "" if "kept" not in self.changed else _KEPT_TEXT.get(self.changed["kept"].words, _NOT_KEPT)
        if self.output == "dv":
            return _times(self.numbers[0], weights) + kept
        names = (
            "dP'" if "dp" in self.changed else "dP",
            *(("delta'", "dLSE'") if "rows" in self.changed else ("delta", "dLSE")),
        )
        if len({each.words for each in self.numbers}) == 1:
            return _times(self.numbers[0], f"{weights} ({names[0]} - {names[1]}{f' + {names[2]}' if dlse else ''})")
        terms = ""
        for sign, name, number in zip("+-+", names, self.numbers, strict=True):
            if number.words == "0" or (name.startswith("dLSE") and not dlse):
                continue
            terms += (f" {sign} " if terms else "-" if sign == "-" else "") + _times(number, name)
        return f"{weights} ({terms})" if " " in terms else f"{weights} {terms}"


def _slack(values: Expectations) -> Expectations:
    return {name: replace(x, total=_SLACK * x.total) for name, x in values.items()}


def _factor(name: str, number: Number) -> list[str]:
    if number is ONE or number.words == "1":
        return []
    if number.words == "0":
        return [f"{name} is missing"]
    return [f"{name} is multiplied by {number.words}"]


def _times(number: Number, text: str) -> str:
    if number.words == "1":
        return text
    if number.words == "0":
        return "0"
    factor = f"({number.words})" if " " in number.words or "/" in number.words or "-" in number.words else number.words
    return f"{factor} * {text}" if factor[0] != "(" or text[0] != "(" else f"{factor} {text}"


def option_value(step: str, option: Option, scene: Scene, s: Steps) -> Any:
    """The value of a variant, kept where many formulas are tried on one case."""
    kept = scene.memo.get(KEPT)
    if kept is None or kept[0] is not s:
        return option.value(scene, s)
    if (step, option.words) not in kept[1]:
        kept[1][step, option.words] = option.value(scene, s)
    return kept[1][step, option.words]
