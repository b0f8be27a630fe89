"""The weights in effect: O is linear in V, so that V one-hot over the keys makes O the weight of every pair, with the case's own Q and K."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.case.memory.contiguity import made_contiguous
from flashverify.case.memory.materialize import materialize
from flashverify.case.shared_kv import shares
from flashverify.checks.passes.logits import modified, products
from flashverify.formats import FORMATS
from flashverify.subjects.blame import subject_code
from flashverify.truth import Truth
from flashverify.xray.placed import with_v

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["Effect", "declared_effect", "effect_of"]

_LAUNCHES = 24
"""Most launches that the weights of one case may take."""
_READING = 0.93
"""Share of the time after which nothing more is read: what was read is to be put into words."""
_ROUNDINGS = 6.0
"""Roundings to the dtype of O that a weight in effect may be off a prediction."""
_COARSE = 2.0**-5
"""Relative distance of an LSE that no rounding to 16 bits explains."""
_LEAST = 2.0**-12
"""Relative distance of weights that is always taken for rounding: no reading is about less."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effect:
    """What a subject's forward does with the values of one case, pair by pair, float64, all `[B, Hq, Sq, Sk]` where not said otherwise.

    Attributes:
        scene: the case.
        weights: in effect: how much of each key's V is in O.
        lse: in effect, natural, `[B, Hq, Sq]`; None where the subject returns none.
        exact: the declared weights; with dropout those that are kept, over 1 - p.
        bound: how far a correct subject may be from `exact`.
        relative: `[B, Hq, Sq, 1]`, how far, of a weight, one may be from it that is no rounding.
        logits: declared, hidden pairs included.
        visible: bool, the declared mask.
        asked: bool `[B, Hq, Sq, 1]`: rows of which something is asked, and whose weights are finite.
    """

    scene: Scene
    weights: Tensor
    lse: Tensor | None
    exact: Tensor
    bound: Tensor
    relative: Tensor
    logits: Tensor
    visible: Tensor
    asked: Tensor

    @property
    def floor(self) -> float:
        """Least weight whose logarithm can be read."""
        return _floor(self.scene)

    def near(self, predicted: Tensor) -> Tensor:
        """Bool: the weights that are `predicted`, up to rounding; those of rows that are not asked always are."""
        far = (self.weights - predicted).abs()
        return (far <= self.relative * predicted.abs() + self.floor / 4) | ~self.asked

    @property
    def right(self) -> bool:
        """Whether all weights are the declared ones."""
        within = (self.weights - self.exact).abs() <= self.bound
        return bool((within | self.near(self.exact)).all())

    def lse_near(self, predicted: Tensor, rows: Tensor | None = None) -> bool:
        """Whether the LSE of every row that sees a key, or of those among `rows`, bool, is `predicted`, natural, `[B, Hq, Sq]`."""
        apart = self.open_rows if rows is None else self.open_rows | ~rows
        return bool((self.rows_with_lse(predicted) | apart).all())

    def rows_with_lse(self, predicted: Tensor) -> Tensor:
        """Bool `[B, Hq, Sq]`: rows whose LSE is `predicted`, natural."""
        assert self.lse is not None
        allowed = 4 * self.scene.right["lse"].total * self.scene.unit + 2.0**-20 * (1 + predicted.abs())
        return ((self.lse - predicted).abs() <= allowed) & torch.isfinite(predicted)

    def lse_far(self, predicted: Tensor) -> bool:
        """Whether the LSE of some row is farther from `predicted` than 16 bits could round it."""
        assert self.lse is not None
        far = (self.lse - predicted).abs() > _COARSE * (1 + predicted.abs())
        return bool((far & ~self.open_rows).any())

    @property
    def open_rows(self) -> Tensor:
        """Bool `[B, Hq, Sq]`: rows that are not asked or see no key."""
        return ~self.asked.squeeze(-1) | ~self.visible.any(-1)


def _floor(scene: Scene) -> float:
    return 4 * 2.0 ** FORMATS[scene.case.dtype].emin


def effect_of(trials: Trials, scene: Scene) -> Effect | None:
    """What the subject does on the case of `scene`, read once; None where V is no tensor of its own or it takes too many launches."""
    if "effect" not in scene.memo:
        case = scene.case
        apart = case.quantised is None and not shares(case) and 0 not in (case.batch, case.seq_q, case.seq_k)
        few = -(-case.seq_k // case.dim_v) <= _LAUNCHES
        scene.memo["effect"] = _read(trials, scene) if apart and few and "o" in scene.right else None
    found: Effect | None = scene.memo["effect"]
    return found


def declared_effect(scene: Scene) -> Effect | None:
    """What a right subject does on the case of `scene`, found once; None where V is no tensor of its own."""
    if "declared effect" not in scene.memo:
        case = scene.case
        apart = case.quantised is None and not shares(case) and 0 not in (case.batch, case.seq_q, case.seq_k)
        scene.memo["declared effect"] = _beside(scene, None, None) if apart and "o" in scene.right else None
    found: Effect | None = scene.memo["declared effect"]
    return found


def _read(trials: Trials, scene: Scene) -> Effect | None:
    case, subject = scene.case, trials.subject
    problem, _ = materialize(case, subject.device())
    keys, parts, lse = torch.arange(case.seq_k, device=problem.q.device), [], None
    for start in range(0, case.seq_k, case.dim_v):
        if not trials.within(_READING):
            return None
        hot = keys.unsqueeze(-1) - start == torch.arange(case.dim_v, device=keys.device)
        given = with_v(problem, hot.to(problem.v.dtype))
        given = made_contiguous(given) if subject.supports.contiguous else given
        try:
            with subject_code():
                forward = subject.forward(given)
        except Exception:  # a defect may raise on other values; those say nothing
            return None
        if tuple(forward.o.shape) != tuple(case.shape_o):
            return None
        parts.append(forward.o.detach().cpu().double())
        if lse is None and forward.lse is not None and "lse" in scene.right:
            lse = forward.lse.detach().cpu().double() * scene.unit
    weights = torch.cat(parts, -1)[..., : case.seq_k]
    return _beside(scene, weights, lse)


def _beside(scene: Scene, weights: Tensor | None, lse: Tensor | None) -> Effect:
    """The weights, the declared ones where there are none, beside the declared ones and their bounds."""
    inputs, case = scene.inputs, scene.case
    one_hot = torch.eye(case.seq_k, dtype=torch.float64).expand(case.batch, case.heads_kv, -1, -1)
    asked = dataclasses.replace(inputs, v=one_hot, do=None, dlse=None)
    exact, bound = Truth(asked, case.dtype, scene.form).forward()["o"]
    weights = exact if weights is None else weights
    visible = torch.ones(1, 1, 1, 1, dtype=torch.bool) if inputs.visible is None else inputs.visible
    visible = visible.expand_as(exact)
    free = scene.free.get("o")
    rows = torch.isfinite(weights).all(-1, keepdim=True)
    if free is not None:
        rows = rows & ~free.all(-1, keepdim=True)
    if scene.contract.empty_row_o not in (0.0, None):
        rows = rows & visible.any(-1, keepdim=True)
    total = torch.where(torch.isfinite(bound.total), bound.total, 0.0)
    raw = dataclasses.replace(inputs, k=scene.problem.k.double().nan_to_num(0.0, 0.0, 0.0))
    z = modified(products(raw), inputs, inputs.biases)
    visible_z = torch.where(visible, z.abs(), 0.0).amax(-1, keepdim=True)
    u = 2.0**-11 if case.precision == "tf32" else FORMATS[case.dtype].u
    of_products = 2.0**-9 if case.precision == "tf32" else 2.0**-19
    relative = (_LEAST + _ROUNDINGS * u + of_products * visible_z).clamp(max=0.25)
    return Effect(
        scene=scene,
        weights=weights,
        lse=lse,
        exact=exact,
        bound=total,
        relative=relative,
        logits=z,
        visible=visible,
        asked=rows,
    )
