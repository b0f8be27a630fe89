"""Places inside a case: the pairs and elements at which conditions hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flashverify.checks.passes.logits import logits, products
from flashverify.diagnosis.conditions import COMPARISONS, Condition
from flashverify.diagnosis.features import case_features
from flashverify.diagnosis.hypothesis import TILES
from flashverify.outputs import output as output_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from flashverify.diagnosis.features import Value
    from flashverify.diagnosis.observation import Scene

__all__ = ["PLACES", "Region", "features_of", "region_of"]

_CHANNELS = (8, 16, 32, 64, 128)
_SEEN = (2, 16, 32, 64, 128)
_LOGITS = (-1000.0, -256.0, -100.0, -64.0, -32.0, -10.0, 0.0, 10.0, 32.0, 64.0, 100.0, 256.0, 1000.0)


def _places() -> tuple[Condition, ...]:
    found = [Condition("member", ">=", 1), Condition("member", "==", 0), Condition("member", "==", "last")]
    for name in ("head", "kv_head", "sequence"):
        found += [Condition(name, ">=", 1), Condition(name, "==", 0), Condition(name, "==", "last")]
    found += [Condition("rows", sign, "keys") for sign in (">", "<", "==", "!=")]
    found += [Condition(name, "==", size) for size in (1, 0) for name in ("rows", "keys")]
    found += [Condition("page", "==", 0), Condition("page", ">=", 1), Condition("page", "==", "last")]
    found += [Condition("last_page", "==", which) for which in ("full", "partial")]
    found += [Condition(name, sign, 0, size) for name in ("keys", "rows") for sign in ("!=", "==") for size in TILES]
    found += [Condition(name, ">=", size) for name in ("keys", "rows") for size in TILES]
    found += [Condition("row", ">=", "keys"), Condition("row", "<", "keys"), Condition("key", ">=", "rows")]
    found += [Condition("row", "==", 0), Condition("row", ">=", 1), Condition("row", "==", "last")]
    for name in ("key_tile", "row_tile"):
        found += [
            Condition(name, "==", which, tile=size) for which in ("last", "first", "later", "partial") for size in TILES
        ]
    found += [Condition(name, "==", rest, 2) for name in ("kv_head", "head", "member", "row", "key") for rest in (1, 0)]
    found += [
        Condition(name, "==", which, tile=size)
        for name in ("key_tile", "row_tile")
        for which in ("odd", "even")
        for size in TILES
    ]
    found += [Condition("seen", "==", 1), *(Condition("seen", sign, size) for size in _SEEN for sign in (">=", "<"))]
    found += [Condition("distance", sign, 0) for sign in ("==", "!=", "<", ">")]
    found += [Condition("distance", sign, -size) for size in TILES for sign in ("<=", ">")]
    found += [Condition("channel", sign, size) for sign in (">=", "<") for size in _CHANNELS]
    found += [Condition("row_max", "<", size) for size in reversed(_LOGITS)]
    found += [Condition("row_max", ">=", size) for size in _LOGITS]
    return tuple(found)


PLACES = _places()
"""Every place that is tried, the simpler ones first."""


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Where conditions hold.

    Attributes:
        pairs: bool, broadcasts to `[B, Hq, Sq, Sk]`.
        channels: the first channel of it and the one behind its last; None for all.
        group: query heads per kv head.
    """

    pairs: Tensor
    channels: tuple[int, int] | None
    group: int

    @property
    def everything(self) -> bool:
        """Whether it is the whole case."""
        return self.channels is None and bool(self.pairs.all())

    @property
    def nothing(self) -> bool:
        """Whether it is empty."""
        return not bool(self.pairs.any()) or (self.channels is not None and self.channels[0] >= self.channels[1])

    def elements(self, name: str, shape: torch.Size) -> Tensor | None:
        """Bool, the elements of output `name` whose pairs all lie in it; None where those of an element lie on both sides."""
        axes = output_spec(name).axes
        if self.channels is not None and not output_spec(name).channels:
            return torch.zeros(shape, dtype=torch.bool)
        mine = self.pairs
        if "head_kv" in axes and mine.shape[1] > 1:
            mine = mine.reshape(mine.shape[0], -1, self.group, *mine.shape[2:])
            if not bool((mine == mine[:, :, :1]).all()):
                return None
            mine = mine[:, :, 0]
        for number, present in enumerate(
            ("batch" in axes, "head_q" in axes or "head_kv" in axes, "row" in axes, "key" in axes)
        ):
            size = shape[number] if present and number < len(shape) and "batch" in axes else None
            if not present or size == 1:
                first = mine.narrow(number, 0, 1)
                if mine.shape[number] > 1 and not bool((mine == first).all()):
                    return None
                mine = first
        if "bucket" in axes or "batch" not in axes:  # a vector or a table of the heads
            return mine.reshape(-1, *(1,) * (len(shape) - 1)).expand(shape)
        if "row" in axes and "key" not in axes:
            mine = mine[..., 0]
        elif "key" in axes and "row" not in axes:
            mine = mine[:, :, 0]
        if output_spec(name).channels:
            mine = mine.unsqueeze(-1)
            if self.channels is not None:
                low, high = self.channels
                at = torch.arange(shape[-1])
                mine = mine & (at >= low) & (at < high)
        return mine.expand(shape)


def region_of(scene: Scene, conditions: Iterable[Condition]) -> Region:
    """Where all of them hold; those on the case hold everywhere or nowhere."""
    pairs = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    channels: tuple[int, int] | None = None
    for each in conditions:
        if each.feature == "channel":
            low, high = channels or (0, max(scene.case.dim_qk, scene.case.dim_v))
            assert isinstance(each.value, int)
            channels = (max(low, each.value), high) if each.comparison == ">=" else (low, min(high, each.value))
        elif each.is_place:
            pairs = pairs & _pairs(scene, each)
        else:
            pairs = pairs & torch.tensor(bool(each.of(features_of(scene))))
    return Region(pairs, channels, scene.group)


def features_of(scene: Scene) -> dict[str, Value]:
    """The features of the case, those of its values among them."""
    if "features" not in scene.memo:
        found = case_features(scene.case, scene.form)
        if (scaled := products(scene.inputs)).numel():
            found["max_product"] = float(scaled.abs().max())
        z = _logits(scene)
        seen = z[torch.isfinite(z)]
        if len(seen):
            top = z.amax(-1)
            found["max_logit"] = float(seen.abs().max())
            found["least_row_max"] = float(top[torch.isfinite(top)].min())
        scene.memo["features"] = found
    features: dict[str, Value] = scene.memo["features"]
    return features


def _logits(scene: Scene) -> Tensor:
    if "logits" not in scene.memo:
        scene.memo["logits"] = logits(scene.inputs)
    z: Tensor = scene.memo["logits"]
    return z


def _pairs(scene: Scene, condition: Condition) -> Tensor:
    """Bool, broadcasts to pairs: where a condition on places holds."""
    if condition.feature in ("row_tile", "key_tile"):
        return _tiles(scene, condition)
    if condition.feature in ("page", "last_page"):
        return _in_pages(scene, condition)
    left, last = _index(scene, condition.feature)
    right: Any = condition.value
    if right == "last":
        right = last
    elif isinstance(right, str):
        right = _index(scene, right)[0]
    if condition.modulus:
        left = left % condition.modulus
    found: Tensor = COMPARISONS[condition.comparison](left, right)
    return found


def _index(scene: Scene, feature: str) -> tuple[Tensor, Any]:
    """The number of each pair's place, broadcasts to pairs, and the last such number."""
    case, at = scene.case, scene.at
    if feature == "sequence":
        count = case.batch if case.mask.packed is None else len(case.mask.packed.lengths())
        return at.row_sequence[:, None, :, None], count - 1
    if feature in ("rows", "keys"):
        return getattr(at, feature)[:, None, :, None], None
    if feature in ("head", "member", "kv_head"):
        heads = torch.arange(case.heads_q)[None, :, None, None]
        if feature == "member":
            return heads % scene.group, scene.group - 1
        return (heads, case.heads_q - 1) if feature == "head" else (heads // scene.group, case.heads_kv - 1)
    if feature == "seen":
        return _seen(scene), None
    if feature == "distance":
        return (at.key[:, None, :] - (at.row + at.shift)[:, :, None])[:, None], None
    if feature == "row":
        return at.row[:, None, :, None], (at.rows - 1)[:, None, :, None]
    if feature == "key":
        return at.key[:, None, None, :], (at.key_limit - 1)[:, None, None, :]
    top = _logits(scene)
    top = top.amax(-1, keepdim=True) if top.shape[-1] else torch.full((*top.shape[:3], 1), -torch.inf)
    return top, None


def _seen(scene: Scene) -> Tensor:
    """How many keys each row sees, broadcasts to `[B, Hq, Sq, 1]`."""
    if "seen" not in scene.memo:
        visible, case = scene.inputs.visible, scene.case
        shape = (case.batch, 1, case.seq_q, case.seq_k)
        scene.memo["seen"] = (torch.ones(shape, dtype=torch.bool) if visible is None else visible).sum(-1, keepdim=True)
    found: Tensor = scene.memo["seen"]
    return found


def _in_pages(scene: Scene, condition: Condition) -> Tensor:
    """By the page in which a key lies, and by whether the keys of its sequence fill their last page; nowhere without pages."""
    pages, size, at = scene.problem.pages, scene.case.storage.page_size, scene.at
    if pages is None or size is None:
        return torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    if condition.feature == "last_page":
        full = (at.keys > 0) & (at.keys % size == 0)
        return (full if condition.value == "full" else (at.keys > 0) & ~full)[:, None, :, None]
    entry = (at.key // size).clamp(max=pages.table.shape[1] - 1)
    number = pages.table.cpu().long().gather(1, entry)
    inside = at.key < at.key_limit
    wanted = pages.k.shape[0] - 1 if condition.value == "last" else condition.value
    found: Tensor = inside & COMPARISONS[condition.comparison](number, wanted)
    return found[:, None, None, :]


def _tiles(scene: Scene, condition: Condition) -> Tensor:
    at, size, which = scene.at, condition.tile, condition.value
    if condition.feature == "key_tile":
        place, limit = at.key[:, None, None, :], at.key_limit[:, None, None, :]
    else:
        place, limit = at.row[:, None, :, None], at.rows[:, None, :, None]
    if which == "first":
        return place < size
    if which == "later":
        return place >= size
    if which in ("odd", "even"):
        return place // size % 2 == (which == "odd")
    if which == "last":
        return place >= (limit - 1).clamp(min=0) // size * size
    return place >= limit // size * size
