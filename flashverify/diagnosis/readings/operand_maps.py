"""Places at which K, V or Q may be read in place of their own: other keys, rows, heads, sequences and channels, and factors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.key_maps import page_maps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Place = Callable[[Tensor, Tensor], Tensor]
    """Of numbers and how many of them there are, the numbers that are read instead."""
    Move = Callable[[Scene, str, Tensor], Tensor | None]
    """Of a scene, an operand's name and its tensor `[B, H, S, D]`, that tensor as it is read; None where that is as declared by nature."""

__all__ = ["at_keys", "of_channels", "of_places"]

_PAIRS = (1, 2, 4, 8, 16, 32)
_CHANNELS = (8, 16, 32, 64, 128)
_PLACES: tuple[tuple[str, Place], ...] = (
    ("the next {}, the last one's own", lambda x, n: torch.minimum(x + 1, n - 1)),
    ("the {} before, the first one's own", lambda x, n: (x - 1).clamp(min=0)),
    ("the next {}, after the last the first one", lambda x, n: (x + 1) % n.clamp(min=1)),
    ("the {} before, before the first the last one", lambda x, n: (x - 1) % n.clamp(min=1)),
    ("the first {}", lambda x, n: x * 0),
    ("the last {}", lambda x, n: n - 1 + 0 * x),
    ("the {} as far from the end", lambda x, n: n - 1 - x),
    ("the {} of half the number", lambda x, n: x // 2),
    ("the {} of twice the number, modulo how many there are", lambda x, n: 2 * x % n.clamp(min=1)),
)


_MEMBERS: tuple[tuple[str, Callable[[Tensor, int], Tensor]], ...] = (
    ("the first query head of its group", lambda h, group: h // group * group),
    ("the last query head of its group", lambda h, group: h // group * group + group - 1),
    ("query head h // group", lambda h, group: h // group),
    ("query head h % group", lambda h, group: h % group),
)
"""Query heads that may be read in place of head h, given how many share a kv head."""


def of_places() -> Iterator[tuple[str, Move]]:
    """Other places along each axis but the last, in words; `{name}` stands for the operand."""
    for words, place in (*_PLACES, *_tiles()):
        yield words, partial(_line, place=place)
    for words, to in page_maps():
        yield f"the place where {words}", partial(_paged, to=to)
    for axis, what in ((1, "head"), (0, "sequence")):
        for words, place in _PLACES:
            yield words.format(what), partial(_axis, place=place, axis=axis)
    for words, member in _MEMBERS:
        yield words, partial(_of_group, member=member)


def at_keys(place: Place) -> Move:
    """The operand of other keys, or of other rows of Q, by their numbers within the sequence."""
    return partial(_line, place=place)


def of_channels() -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Other channels, channels that are lost, and factors, in words; of a tensor whose last axis is those channels."""
    yield "those of the other half of the channels", partial(_channel, to=lambda c, d: (c + d // 2) % d)
    for n in _PAIRS:
        yield f"those of channel c ^ {n}", partial(_channel, to=lambda c, d, n=n: torch.where((c ^ n) < d, c ^ n, c))  # type: ignore[misc]
        yield f"those of channel c + {n}, the first ones after the last", partial(_rolled, n=-n)
        yield f"those of channel c - {n}, the last ones before the first", partial(_rolled, n=n)
    for n in _CHANNELS:
        yield f"those of channel c % {n}", partial(_channel, to=lambda c, d, n=n: c % n)  # type: ignore[misc]
        yield f"0 from channel {n} on", partial(_kept, where=lambda c, d, n=n: c < n)  # type: ignore[misc]
        yield f"0 behind the last multiple of {n} channels", partial(_kept, where=lambda c, d, n=n: c < d // n * n)  # type: ignore[misc]
        yield f"0 in the last {n} channels", partial(_kept, where=lambda c, d, n=n: c < d - n)  # type: ignore[misc]
        yield f"0 in the first {n} channels", partial(_kept, where=lambda c, d, n=n: c >= n)  # type: ignore[misc]
    yield "those of the channels in reverse order", partial(_channel, to=lambda c, d: d - 1 - c)
    yield (
        "those of neighbouring channels in place of channels half of them apart",
        partial(_channel, to=lambda c, d: c % 2 * (d // 2) + c // 2),
    )
    yield (
        "those of channels half of them apart in place of neighbouring ones",
        partial(_channel, to=lambda c, d: torch.where(c < d // 2, 2 * c, 2 * c - d + 1).clamp(max=d - 1)),
    )
    for n in (2, 4, *_CHANNELS[:3]):
        yield (
            f"those of the layout [D / {n}, {n}] taken for [{n}, D / {n}]",
            partial(_channel, to=partial(_transposed, n=n, wide=False)),
        )
        yield (
            f"those of the layout [{n}, D / {n}] taken for [D / {n}, {n}]",
            partial(_channel, to=partial(_transposed, n=n, wide=True)),
        )
    yield "those of the first channel", partial(_channel, to=lambda c, d: c * 0)
    for part, where in (
        ("the first half", lambda c, d: c < d // 2),
        ("the second half", lambda c, d: c >= d // 2),
        ("every second channel from the first one on", lambda c, d: c % 2 == 0),
        ("every second channel from the second one on", lambda c, d: c % 2 == 1),
    ):
        yield f"0 in {part}", partial(_kept, where=lambda c, d, w=where: ~w(c, d))  # type: ignore[misc]
        yield f"of the other sign in {part}", partial(_signed, where=where)
    for factor, times in ((-1.0, "-1"), (2.0, "2"), (0.5, "1/2"), (4.0, "4"), (0.25, "1/4"), (0.0, "0")):
        yield f"{times} times what they are", partial(_scaled, factor=factor)


def _tiles() -> Iterator[tuple[str, Place]]:
    for n in _PAIRS:
        yield f"{{}} x ^ {n}", lambda x, count, n=n: torch.where((x ^ n) < count, x ^ n, x)  # type: ignore[misc]
    for t in (4, 8, *TILES):
        yield f"the first {{}} of its {t}", lambda x, n, t=t: x // t * t  # type: ignore[misc]
        yield f"the last {{}} of its {t}", lambda x, n, t=t: torch.minimum(x // t * t + t - 1, n - 1)  # type: ignore[misc]
        yield (
            f"the {{}} in reverse order among its {t}",
            lambda x, n, t=t: torch.minimum(x // t * t + t - 1 - x % t, n - 1),  # type: ignore[misc]
        )
        yield f"{{}} x % {t}", lambda x, n, t=t: x % t  # type: ignore[misc]
        yield f"the {{}} {t} further, where there is one", lambda x, n, t=t: torch.where(x + t < n, x + t, x)  # type: ignore[misc]
        yield f"the {{}} {t} before, where there is one", lambda x, n, t=t: torch.where(x >= t, x - t, x)  # type: ignore[misc]
        yield (
            f"the next {{}} of its {t}, after the last the first one",
            lambda x, n, t=t: torch.minimum(x // t * t + (x + 1) % t, n - 1),  # type: ignore[misc]
        )


def _line(scene: Scene, name: str, x: Tensor, place: Place) -> Tensor | None:
    """Keys, or rows of Q, by their numbers within their sequence."""
    at = scene.at
    own, many = (at.row, at.rows) if name == "q" else (at.key, at.key_limit)
    return _taken(x, own, place(own, many), many)


def _paged(scene: Scene, name: str, x: Tensor, to: Callable[[Tensor, Tensor, int], Tensor]) -> Tensor | None:
    size = scene.case.storage.page_size
    if size is None or name == "q":
        return None
    at = scene.at
    return _taken(x, at.key, to(at.key, at.key_limit, size), torch.full_like(at.key, x.shape[2]))


def _taken(x: Tensor, own: Tensor, other: Tensor, many: Tensor) -> Tensor:
    """`x` at other numbers of its sequence; those that there are not are left alone, and so is what lies behind."""
    inside = (own < many) & (other >= 0) & (other < many)
    at = torch.arange(x.shape[2]) + torch.where(inside, other - own, 0)
    at = at.clamp(0, max(x.shape[2] - 1, 0)).expand(x.shape[0], -1)
    return x.gather(2, at[:, None, :, None].expand_as(x))


def _axis(scene: Scene, name: str, x: Tensor, place: Place, axis: int) -> Tensor | None:  # noqa: ARG001
    count = x.shape[axis]
    if count < 2:
        return None
    return x.index_select(axis, place(torch.arange(count), torch.tensor(count)).clamp(0, count - 1))


def _of_group(scene: Scene, name: str, x: Tensor, member: Callable[[Tensor, int], Tensor]) -> Tensor | None:
    if name != "q" or scene.group < 2:
        return None
    return x.index_select(1, member(torch.arange(x.shape[1]), scene.group))


def _channel(x: Tensor, to: Callable[[Tensor, int], Tensor]) -> Tensor:
    return x[..., to(torch.arange(x.shape[-1]), x.shape[-1])]


def _transposed(c: Tensor, count: int, n: int, *, wide: bool) -> Tensor:
    """Of channels laid out as `[count / n, n]`, or as `[n, count / n]` where `wide`, those that the other one of these layouts takes for each."""
    if count % n or count == n:
        return c
    rows = n if wide else count // n
    return c % rows * (count // rows) + c // rows


def _rolled(x: Tensor, n: int) -> Tensor:
    return x.roll(n, -1)


def _kept(x: Tensor, where: Callable[[Tensor, int], Tensor]) -> Tensor:
    return x * where(torch.arange(x.shape[-1]), x.shape[-1])


def _signed(x: Tensor, where: Callable[[Tensor, int], Tensor]) -> Tensor:
    return torch.where(where(torch.arange(x.shape[-1]), x.shape[-1]), -x, x)


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor
