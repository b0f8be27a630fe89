"""What a kernel may take for dP, delta, dLSE, the derivative of the softcap and the operands of its products."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from flashverify.checks.passes.logits import products
from flashverify.diagnosis.readings.backward.moves import key_moves, moved, row_moves
from flashverify.diagnosis.readings.backward.variants import Option, RowTerms, added_names, draws_elsewhere, of_row
from flashverify.diagnosis.readings.devices import CUTS, TWO, counted_devices, devices_of, place_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.variants import Value

__all__ = ["dp_variants", "operand_variants", "row_variants", "slope_variants"]

_CHANNELS = (8, 16, 32, 64, 128)


def slope_variants(scene: Scene) -> Iterator[Option]:
    """The derivative of the softcap."""
    if not scene.inputs.softcap:
        return

    def of(change: Callable[[float, Tensor, Steps], Tensor]) -> Value:
        """Of the cap, the scaled product over the cap, and the steps."""

        def value(other: Scene, s: Steps) -> Tensor | None:
            cap = other.inputs.softcap
            return change(cap, products(other.inputs) / cap, s) if cap else None

        return value

    what = "the derivative of the softcap is"
    yield Option("the derivative of the softcap stands in it", of(lambda _cap, _x, s: s.slope))
    yield Option(f"{what} missing", of(lambda _cap, _x, s: torch.ones_like(s.slope)))
    yield Option(f"{what} squared", of(lambda _cap, _x, s: s.slope**2))
    yield Option(f"{what} taken at the capped logit", of(lambda _cap, x, _s: 1 - torch.tanh(torch.tanh(x)) ** 2))
    yield Option(
        f"{what} taken at the product without the scale", of(lambda _cap, x, s: 1 - torch.tanh(x / s.scale) ** 2)
    )
    yield from _of_other_arguments(scene, what)
    yield Option(f"{what} taken as 1 - tanh", of(lambda _cap, x, _s: 1 - torch.tanh(x)))
    yield Option(f"{what} taken as 1 + tanh^2", of(lambda _cap, x, _s: 1 + torch.tanh(x) ** 2))
    yield Option(f"{what} taken as 1 - tanh^2 / cap", of(lambda cap, x, _s: 1 - torch.tanh(x) ** 2 / cap))
    yield Option(
        f"{what} taken at the whole logit, with what is added behind the cap",
        of(lambda cap, _x, s: 1 - (s.z.masked_fill(~s.see, 0.0) / cap) ** 2),
    )


def _of_other_arguments(scene: Scene, what: str) -> Iterator[Option]:
    """The derivative of the softcap at what is added behind the cap, with the scaled product or without it, by sign."""
    names = added_names(scene)
    for signs in product((0, 1, -1), repeat=len(names)):
        if not any(signs):
            continue
        added = "".join(f" {'+' if sign > 0 else '-'} {name}" for sign, name in zip(signs, names, strict=True) if sign)
        for with_product, words in ((True, f"the product{added}"), (False, added.strip(" +"))):
            yield Option(f"{what} taken at {words}", partial(_at_argument, names, signs, with_product))


def _at_argument(names: list[str], signs: tuple[int, ...], with_product: bool, scene: Scene, s: Steps) -> Tensor | None:
    cap = scene.inputs.softcap
    if not cap or added_names(scene) != names:
        return None
    x = products(scene.inputs) * with_product
    for sign, bias in zip(signs, scene.inputs.biases, strict=True):
        x = x + sign * bias.double()
    return 1 - torch.tanh(x.expand(s.p.shape) / cap) ** 2


def dp_variants(scene: Scene) -> Iterator[Option]:
    """The product dO V^T, and what dropout does to it."""
    if scene.case.dropout:
        yield Option("dP is neither dropped nor scaled by 1 / (1 - p)", lambda _scene, s: s.do @ s.v.mT)
        yield Option(
            "dP is scaled by 1 / (1 - p) but not dropped",
            lambda other, s: (s.do @ s.v.mT) / (1 - other.case.dropout),
        )
        yield Option("dP is dropped but not scaled by 1 / (1 - p)", lambda _scene, s: (s.do @ s.v.mT) * (s.kept > 0))
        for words, draws in draws_elsewhere(scene):
            yield Option(f"the draws of dropout are those of {words}", partial(_dp_with, draws), True)
    for size in _CHANNELS:
        if size < scene.case.dim_v:
            yield Option(f"dP sums the first {size} channels only", _first_channels(size))
    for words in key_moves(scene):
        yield Option(f"dP is made of V of {words}", _dp_of_key(words), True)
    for name in (*counted_devices(scene), TWO):
        for how, cut in CUTS:
            among = f"of pieces {how}, one for each of the {name}"
            words = f"dP is made of V of the row's own device, where that has as many keys, {among}"
            yield Option(words, partial(_dp_of_own_device, name=name, cut=cut), True)
            for ahead in range(1, devices_of(scene, name)):
                words = f"dP is made of V of the device {ahead} further than the key's, where that has as many, {among}"
                yield Option(words, partial(_dp_of_device, name=name, cut=cut, ahead=ahead), True)
    for words in row_moves(scene):
        yield Option(
            f"dP is made of dO of {words}", of_row(words, lambda s, read: (read(s.do) @ s.v.mT) * s.kept), True
        )


def _dp_of_device(scene: Scene, s: Steps, name: str, cut: Callable[[int, int], Tensor], ahead: int) -> Tensor | None:
    count = devices_of(scene, name)
    if not count:
        return None
    read = place_on(cut(scene.case.seq_k, count), torch.tensor(ahead), count)
    return (s.do @ s.v[:, :, read].mT) * s.kept


def _dp_of_own_device(scene: Scene, s: Steps, name: str, cut: Callable[[int, int], Tensor]) -> Tensor | None:
    count = devices_of(scene, name)
    if not count:
        return None
    rows, keys = cut(scene.case.seq_q, count), cut(scene.case.seq_k, count)
    found = torch.zeros_like(s.dp)
    for device in range(count):
        read = place_on(keys, device - keys, count)
        mine = rows == device
        found[:, :, mine] = s.do[:, :, mine] @ s.v[:, :, read].mT
    return found * s.kept


def _dp_with(draws: Value, scene: Scene, s: Steps) -> Tensor | None:
    kept = draws(scene, s)
    return None if kept is None else (s.do @ s.v.mT) * kept


def _first_channels(size: int) -> Value:
    return lambda _scene, s: (s.do[..., :size] @ s.v[..., :size].mT) * s.kept


def _dp_of_key(words: str) -> Value:
    def value(scene: Scene, s: Steps) -> Tensor | None:
        move = key_moves(scene).get(words)
        return None if move is None else (s.do @ moved(s.v, move).mT) * s.kept

    return value


def row_variants(scene: Scene) -> Iterator[Option]:
    """Delta and dLSE."""
    for words in row_moves(scene):
        yield Option(f"delta is that of {words}", of_row(words, lambda s, read: RowTerms(read(s.delta), s.dlse)), True)
        yield Option(
            f"delta is made of O of {words}",
            of_row(words, lambda s, read: RowTerms((s.do * read(s.o)).sum(-1), s.dlse)),
            True,
        )
        yield Option(
            f"delta and dLSE are those of {words}",
            of_row(words, lambda s, read: RowTerms(read(s.delta), read(s.dlse))),
            True,
        )
        if scene.inputs.dlse is not None:
            yield Option(
                f"dLSE is that of {words}", of_row(words, lambda s, read: RowTerms(s.delta, read(s.dlse))), True
            )
    if scene.inputs.dlse is not None:
        yield Option(
            "dLSE is read as if it were contiguous, whatever its strides are",
            lambda other, s: None if (x := _contiguous(other.problem.dlse)) is None else RowTerms(s.delta, x * s.some),
        )
    yield Option(
        "delta is made of dO read as if it were contiguous, whatever its strides are",
        lambda other, s: None if (x := _contiguous(other.problem.do)) is None else RowTerms((x * s.o).sum(-1), s.dlse),
    )
    if scene.case.dropout:
        yield Option(
            "delta is that of attention without dropout",
            lambda _scene, s: RowTerms((s.p * (s.do @ s.v.mT)).sum(-1), s.dlse),
        )
    for size in _CHANNELS:
        if size < scene.case.dim_v:
            yield Option(f"delta sums the first {size} channels only", _delta_of_channels(size))


def _contiguous(x: Tensor | None) -> Tensor | None:
    """What stands in memory where a contiguous tensor of that shape would have its elements, float64; None where memory ends before."""
    if x is None or x.storage_offset() + x.numel() > x.untyped_storage().nbytes() // x.element_size():
        return None
    strides = torch.empty(x.shape, device="meta").stride()
    return x.as_strided(x.shape, strides).double().nan_to_num(0.0, 0.0, 0.0)


def _delta_of_channels(size: int) -> Value:
    return lambda _scene, s: RowTerms((s.do * s.o)[..., :size].sum(-1), s.dlse)


def operand_variants(moves: Any, kind: str) -> Iterator[Option]:
    """Which rows or keys the product is taken with: the value is how a tensor of them is read."""
    for words in moves:
        yield Option(words, _reader(words, kind), True)


def _reader(words: str, kind: str) -> Value:
    def value(scene: Scene, _s: Steps) -> Any:
        move = (row_moves if kind == "row" else key_moves)(scene).get(words)
        return None if move is None else lambda x: moved(x, move)

    return value
