"""Wrong semantics of where a bias, the slopes of ALiBi are read, and of how often they count."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from flashverify.case.modifiers.alibi import acting_slopes
from flashverify.diagnosis.hypotheses.alignment import buffer_shifts
from flashverify.diagnosis.hypotheses.terms import split_biases, with_biases
from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Changes = Callable[[Scene, Tensor], Iterator[tuple[Tensor, str]]]

__all__ = ["TERM_PLACES"]

_LOG2E = 1.0 / math.log(2.0)


def _bias(changes: Changes) -> Callable[[Scene], Iterator[Alternative]]:
    """Another bias, a function of the declared one `[B or 1, Hq or 1, Sq, Sk]`; nothing where that is the same."""

    def build(scene: Scene) -> Iterator[Alternative]:
        bias, alibi = split_biases(scene)
        if bias is not None and bias.numel():
            for changed, detail in changes(scene, bias):
                if not torch.equal(changed, bias):
                    yield Alternative(inputs=with_biases(scene, changed, alibi), detail=detail)

    return build


def _one(change: Callable[[Scene, Tensor], Tensor]) -> Changes:
    return lambda scene, bias: iter([(change(scene, bias), "")])


def _kv_head(scene: Scene, x: Tensor) -> Tensor:
    return x if x.shape[1] < 2 else x[:, torch.arange(x.shape[1]) // scene.group]


def _first_member(scene: Scene, x: Tensor) -> Tensor:
    return x if x.shape[1] < 2 else x[:, torch.arange(x.shape[1]) // scene.group * scene.group]


def _moved(axis: int) -> Changes:
    """One row or key too early or too late; the end stands for what lies behind it."""

    def changes(_scene: Scene, bias: Tensor) -> Iterator[tuple[Tensor, str]]:
        place = torch.arange(bias.shape[axis])
        for by, words in ((1, "the next one"), (-1, "the one before")):
            yield bias.index_select(axis, (place + by).clamp(0, bias.shape[axis] - 1)), words

    return changes


def _first_row(_scene: Scene, bias: Tensor) -> Iterator[tuple[Tensor, str]]:
    yield bias[:, :, :1].expand_as(bias), "of the first row"
    for size in (16, 32, 64, 128):
        if size < bias.shape[2]:
            yield bias[:, :, torch.arange(bias.shape[2]) // size * size], f"of the first row of a tile of {size}"


def _transposed(_scene: Scene, bias: Tensor) -> Iterator[tuple[Tensor, str]]:
    if bias.shape[2] == bias.shape[3]:
        yield bias.mT, ""


def _row_stride(_scene: Scene, bias: Tensor) -> Iterator[tuple[Tensor, str]]:
    """Row i begins at i times another number than Sk, in the memory of its head."""
    rows, keys = bias.shape[2:]
    at = torch.arange(rows)[:, None]
    for stride, words in ((rows, "as many elements as there are rows"), (0, "no element")):
        if stride != keys and stride:
            place = (at * stride + torch.arange(keys)).clamp(max=rows * keys - 1)
            yield bias.flatten(2)[:, :, place], words


def _key_in_page(scene: Scene, bias: Tensor) -> Iterator[tuple[Tensor, str]]:
    """Keys are counted from the begin of their page, or of a tile."""
    page = scene.case.storage.page_size
    for size in dict.fromkeys((page, 16, 32, 64, 128)):
        if size is not None and size < bias.shape[3]:
            words = "of its page" if size == page else f"of a tile of {size}"
            yield bias[..., torch.arange(bias.shape[3]) % size], words


def _in_sequence(scene: Scene, bias: Tensor) -> Iterator[tuple[Tensor, str]]:
    """The bias of a packed buffer by numbers of rows, keys or both inside their sequence."""
    if scene.case.mask.packed is not None:
        row, key = scene.at.row[0], scene.at.key[0]
        yield bias[:, :, row], "of the row"
        yield bias[..., key], "of the key"
        yield bias[:, :, row][..., key], "of the row and the key"


def _slopes(
    change: Callable[[Scene, Tensor], Iterator[tuple[Tensor, str]]],
) -> Callable[[Scene], Iterator[Alternative]]:
    """Other slopes, a function of the declared ones `[Hq]`."""

    def build(scene: Scene) -> Iterator[Alternative]:
        bias, alibi = split_biases(scene)
        if alibi is None or scene.problem.slopes is None:
            return
        slopes = acting_slopes(scene.problem.slopes)
        for changed, detail in change(scene, slopes):
            if not torch.equal(changed.double(), slopes.double()):
                term = -changed.double().view(-1, 1, 1) * _distance(scene, scene.at.shift).abs()
                yield Alternative(inputs=with_biases(scene, bias, term), detail=detail)

    return build


def _distance(scene: Scene, shift: Tensor) -> Tensor:
    """Position - key, float64 `[B, 1, Sq, Sk]`."""
    at = scene.at
    return ((at.row + shift)[:, None, :, None] - at.key[:, None, None, :]).double()


def _by_the_key(scene: Scene) -> Iterator[Alternative]:
    """Slope times a number of the key alone; what is the same for all keys of a row shows in the LSE."""
    bias, alibi = split_biases(scene)
    if alibi is None or scene.problem.slopes is None:
        return
    slope, key = acting_slopes(scene.problem.slopes).double().view(-1, 1, 1), scene.at.key[:, None, None, :]
    yield Alternative(inputs=with_biases(scene, bias, slope * key), detail="from the first key")
    from_end = slope * (key - (scene.at.keys[:, None, :, None] - 1))
    yield Alternative(inputs=with_biases(scene, bias, from_end), detail="from the last key")


def _by_the_buffers(scene: Scene) -> Iterator[Alternative]:
    bias, alibi = split_biases(scene)
    if alibi is None or scene.problem.slopes is None:
        return
    slope = acting_slopes(scene.problem.slopes).double().view(-1, 1, 1)
    for shift, words in buffer_shifts(scene):
        yield Alternative(inputs=with_biases(scene, bias, -slope * _distance(scene, shift).abs()), detail=words)


def _from_the_end(scene: Scene) -> Iterator[Alternative]:
    bias, alibi = split_biases(scene)
    shift = scene.at.keys - scene.at.rows
    if alibi is None or scene.problem.slopes is None or scene.case.mask.aligned_at_end or not bool(shift.any()):
        return
    slope = acting_slopes(scene.problem.slopes).double().view(-1, 1, 1)
    yield Alternative(inputs=with_biases(scene, bias, -slope * _distance(scene, shift).abs()))


def _of_kv_heads(scene: Scene, slopes: Tensor) -> Iterator[tuple[Tensor, str]]:
    """The slopes of a model with as many heads as there are kv heads; and those of the heads by their number in the group."""
    head = torch.arange(len(slopes))
    if scene.group > 1:
        yield slopes[head % scene.case.heads_kv], "head modulo kv heads"
        yield slopes[head % scene.group], "head modulo the heads of a group"


TERM_PLACES = (
    Semantics(
        name="bias-of-kv-head",
        sentence="the bias is that of the query head with the number of the kv head",
        build=_bias(_one(_kv_head)),
    ),
    Semantics(
        name="bias-of-first-member",
        sentence="the heads of a group get the bias of their first one",
        build=_bias(_one(_first_member)),
    ),
    Semantics(
        name="bias-of-next-head",
        sentence="a head gets the bias of the next one",
        build=_bias(_one(lambda _s, b: b.roll(-1, 1))),
    ),
    Semantics(
        name="bias-of-first-sequence",
        sentence="every entry of the batch gets the bias of the first one",
        build=_bias(_one(lambda _s, b: b[:1].expand_as(b))),
    ),
    Semantics(name="bias-of-another-row", sentence="a row gets the bias of a neighbour", build=_bias(_moved(2))),
    Semantics(name="bias-of-another-key", sentence="a key gets the bias of a neighbour", build=_bias(_moved(3))),
    Semantics(name="bias-of-first-row", sentence="several rows get the bias of one row", build=_bias(_first_row)),
    Semantics(name="bias-transposed", sentence="rows and keys of the bias are exchanged", build=_bias(_transposed)),
    Semantics(
        name="bias-row-stride", sentence="the stride of the bias from row to row is wrong", build=_bias(_row_stride)
    ),
    Semantics(
        name="bias-of-key-in-page",
        sentence="the bias of a key is looked up by its number inside its page or tile",
        build=_bias(_key_in_page),
    ),
    Semantics(
        name="bias-counted-in-sequence",
        sentence="the bias of a packed buffer is looked up by numbers inside a sequence",
        build=_bias(_in_sequence),
    ),
    Semantics(name="bias-twice", sentence="the bias is added twice", build=_bias(_one(lambda _s, b: b * 2.0))),
    Semantics(
        name="alibi-with-log2e",
        sentence="ALiBi is multiplied by log2(e) once too often",
        build=_slopes(lambda _s, slopes: iter([(slopes * _LOG2E, "")])),
    ),
    Semantics(
        name="alibi-slope-of-first-head",
        sentence="ALiBi takes the slope of the first head for all",
        build=_slopes(lambda _s, slopes: iter([(slopes[:1].expand_as(slopes), "")])),
    ),
    Semantics(
        name="alibi-slope-of-first-member",
        sentence="ALiBi takes the slope of the first head of a group for the group",
        build=_slopes(
            lambda scene, slopes: iter([(slopes[torch.arange(len(slopes)) // scene.group * scene.group], "")])
        ),
    ),
    Semantics(
        name="alibi-slope-modulo",
        sentence="ALiBi takes the slope of a head whose number is a remainder",
        build=_slopes(_of_kv_heads),
    ),
    Semantics(
        name="alibi-of-the-key",
        sentence="ALiBi is the slope times the number of the key, without the row",
        build=_by_the_key,
    ),
    Semantics(
        name="alibi-from-the-end",
        sentence="ALiBi measures distances from the bottom-right diagonal, where none or the top-left one is declared",
        build=_from_the_end,
    ),
    Semantics(
        name="alibi-of-the-buffers",
        sentence="ALiBi measures distances by the sizes of the buffers, not by the declared lengths",
        build=_by_the_buffers,
    ),
)
