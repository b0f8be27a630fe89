"""An exponential whose relative error depends on the fraction of its exponent: linear in a few unknown numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.precision.fitting import asked, predicted
from flashverify.diagnosis.precision.models import TILES
from flashverify.diagnosis.precision.steps import declared
from flashverify.diagnosis.readings.backward.quantities import known_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Features = Callable[[Scene], dict[str, Tensor] | None]

__all__ = ["LN2", "SMALL", "exponential_words", "fitted", "how_well", "waves"]

LN2 = math.log(2.0)
_OF_BACKWARD = frozenset({"dq", "dk", "dv"})
_WAVES = 3
_EXPLAINED = 0.9
_NEARER = 1.1
"""An output whose squared distance from a prediction is more than so many times that from what is declared contradicts it."""
_LARGEST = 1 << 16
SMALL = 2.0**-5
"""Relative errors of weights up to which the change of the outputs is taken to be linear; what is larger is no matter of precision."""


def exponential_words(scenes: list[Scene], others: tuple[Scene, ...], names: frozenset[str]) -> str:
    """What is wrong with the exponential, fitted on one scene and tested on the rest and on other cases; empty where nothing fits."""
    form = scenes[0].form
    if names <= {"o", "lse"}:
        tiles = (form.block_n,) if form.block_n is not None else TILES
        ways = [_fractions(tile, rescales=each) for tile in tiles for each in (True, False)]
    elif names <= _OF_BACKWARD:
        ways = [_of_weights]
    else:
        return ""
    tried = [fitted(scenes, others, names, each) for each in ways]
    if wave := max((each for each in tried if each is not None), key=lambda each: each[1], default=None):
        worst = float(waves(torch.linspace(0, 1, 257, dtype=torch.float64)).mT.mul(wave[0]).sum(-1).abs().max())
        if worst > SMALL:
            return ""
        return (
            "an exponential by a polynomial of low degree: its relative error depends on the fraction "
            f"of the base-2 exponent and is up to 2^{math.log2(worst):.1f} ({how_well(wave[1])})"
        )
    return ""


def how_well(explained: float) -> str:
    """The share of the squared error that is explained, in words."""
    return f"{100 * explained:.0f} % of the squared error explained"


def fitted(
    scenes: list[Scene], others: tuple[Scene, ...], names: frozenset[str], features: Features
) -> tuple[Tensor, float] | None:
    """Coefficients by least squares on one scene, and the least share that they explain on all."""
    found = [_system(scene, names, features) for scene in scenes]
    if any(system is None for system in found):
        return None
    systems = [system for system in found if system is not None]
    for a, b in systems:
        coefficients = torch.linalg.lstsq(a, b.unsqueeze(-1), driver="gelsd").solution.squeeze(-1)
        least = min(_explained(system, coefficients) for system in systems)
        if least > _EXPLAINED and not any(_contradicts(scene, names, features, coefficients) for scene in others):
            return coefficients, least
    return None


def _explained(system: tuple[Tensor, Tensor], coefficients: Tensor) -> float:
    a, b = system
    whole = float((b**2).sum())
    return 1.0 - float(((b - a @ coefficients) ** 2).sum()) / whole if whole else -math.inf


def _contradicts(scene: Scene, names: frozenset[str], features: Features, coefficients: Tensor) -> bool:
    """Whether a run of another case is farther from what is predicted than from what is declared."""
    system = _system(scene, names & scene.outputs.keys(), features)
    if system is None or not len(system[1]):
        return False
    a, b = system
    return float(((b - a @ coefficients) ** 2).sum()) > _NEARER * float((b**2).sum())


def _system(scene: Scene, names: frozenset[str], features: Features) -> tuple[Tensor, Tensor] | None:
    """Features `[elements, unknowns]` and errors `[elements]`, both in units of the bound."""
    given = features(scene)
    if given is None:
        return None
    right = predicted(scene, declared(scene), names)
    rows, errors = [], []
    for name in sorted(names):
        total = scene.right[name].total
        error = (scene.outputs[name] - right[name]) / total
        wanted = asked(scene, name) & torch.isfinite(error) & torch.isfinite(given[name]).all(-1)
        rows.append((given[name] / total.unsqueeze(-1))[wanted])
        errors.append(error[wanted])
    return torch.cat(rows), torch.cat(errors)


def _moved(scene: Scene, relative: Tensor) -> dict[str, Tensor]:
    """The change of O and LSE where each weight has a relative error, `[..., Sq, Sk, unknowns]`."""
    o = scene.truth.forward()["o"][0]
    z = logits(scene.inputs)
    natural = scene.truth.forward()["lse"][0] * scene.unit
    p = torch.where(torch.isfinite(z), (z - natural.unsqueeze(-1)).exp(), 0.0).unsqueeze(-1) * relative
    v = scene.inputs.v.double().repeat_interleave(scene.group, 1)
    of_o = torch.einsum("bhmnk,bhnd->bhmdk", p, v) - torch.einsum("bhmnk,bhmd->bhmdk", p, o)
    return {"o": of_o, "lse": p.sum(-2) / scene.unit}


def _of_weights(scene: Scene) -> dict[str, Tensor] | None:
    """The change of dQ, dK and dV where each weight of the backward has a relative error by the fraction of its base-2 exponent."""
    s = known_steps(scene)
    if s is None or s.z.numel() > _LARGEST or not s.z.shape[-1]:
        return None
    relative = _errors((s.z - s.lse.unsqueeze(-1)) / LN2)
    ds = (scene.inputs.scale * s.formula() * s.slope).unsqueeze(-1) * relative
    weights = (s.p * s.kept).unsqueeze(-1) * relative

    def grouped(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], -1, scene.group, *x.shape[2:]).sum(2)

    return {
        "dq": torch.einsum("bhmnk,bhnd->bhmdk", ds, s.k),
        "dk": grouped(torch.einsum("bhmnk,bhmd->bhndk", ds, s.q)),
        "dv": grouped(torch.einsum("bhmnk,bhmd->bhndk", weights, s.do)),
    }


def waves(fraction: Tensor) -> Tensor:
    """A basis of smooth functions of the fraction, `[unknowns, ...]`: powers and waves."""
    centred = fraction - 0.5
    found = [torch.ones_like(fraction), centred, centred**2, centred**3]
    for number in range(1, _WAVES + 1):
        found += [torch.cos(2 * math.pi * number * fraction), torch.sin(2 * math.pi * number * fraction)]
    return torch.stack(found)


def _fractions(tile: int | None, *, rescales: bool) -> Features:
    """The relative error of each exponential depends on the fraction of its base-2 exponent, beside the running maximum.

    Args:
        tile: keys of a tile; None for all at once.
        rescales: the factors of the rescales are made by the same exponential.
    """

    def features(scene: Scene) -> dict[str, Tensor] | None:
        z = logits(scene.inputs)
        keys = z.shape[-1]
        if z.numel() > _LARGEST or not keys or scene.inputs.keep is not None:
            return None
        number = torch.arange(keys) // (tile or keys)
        tops = torch.stack([z.masked_fill(number != n, -torch.inf).amax(-1) for n in range(int(number[-1]) + 1)], -1)
        tops = tops.cummax(-1).values
        relative = _errors((z - tops[..., number]) / LN2)
        if rescales:
            grown = _errors((tops[..., :-1] - tops[..., 1:]) / LN2)
            later = torch.cat([grown.flip(-2).cumsum(-2).flip(-2), torch.zeros_like(relative[..., :1, :])], -2)
            relative = relative + later[..., number, :]
        return _moved(scene, relative)

    return features


def _errors(exponent: Tensor) -> Tensor:
    """The basis at the fractions of exponents, `[..., unknowns]`; 0 where an exponent is 0, which is exact, or not finite."""
    known = torch.isfinite(exponent) & (exponent != 0)
    exponent = exponent.masked_fill(~known, 0.0)
    return waves(exponent - exponent.floor()).movedim(0, -1) * known.unsqueeze(-1)
