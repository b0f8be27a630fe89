"""Rules that say at which other place the value stands that an element should hold or does hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

__all__ = ["At", "Rule", "rules"]

_STEPS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Divisors and sizes of tiles that are tried."""
_SHIFTS = (1, 2, 3, 4, 8, 16, 32, 64, 128)


class At(NamedTuple):
    """Places of elements, int64 `[n]` each, in an output of `sizes` = (sequences, heads, rows, channels); axes that it lacks have size 1.

    `group` is the number of its heads for each kv head, `longer` the other one of Sq and Sk less its own.
    """

    b: Tensor
    h: Tensor
    i: Tensor
    c: Tensor
    sizes: tuple[int, int, int, int]
    group: int
    longer: int

    def inside(self) -> Tensor:
        """Bool `[n]`: the places that exist."""
        places = zip((self.b, self.h, self.i, self.c), self.sizes, strict=True)
        return torch.stack([(x >= 0) & (x < size) for x, size in places]).all(0)


@dataclass(frozen=True, slots=True)
class Rule:
    """Where the value of a place comes from.

    Attributes:
        words: that place; `{line}` and `{channel}` are the names of the last two axes.
        source: of every place.
    """

    words: str
    source: Callable[[At], At]


def _line(words: str, of: Callable[[Tensor, At], Tensor]) -> Rule:
    return Rule(words, lambda at: at._replace(i=of(at.i, at)))


def _head(words: str, of: Callable[[Tensor, At], Tensor]) -> Rule:
    return Rule(words, lambda at: at._replace(h=of(at.h, at)))


def _sequence(words: str, of: Callable[[Tensor, At], Tensor]) -> Rule:
    return Rule(words, lambda at: at._replace(b=of(at.b, at)))


def _channel(words: str, of: Callable[[Tensor, At], Tensor]) -> Rule:
    return Rule(words, lambda at: at._replace(c=of(at.c, at)))


def _kv_heads(at: At) -> int:
    """Groups of heads; one in a tensor that all heads share."""
    return max(1, at.sizes[1] // at.group)


def rules() -> Iterator[Rule]:
    """Every rule, the simplest first."""
    yield from _of_heads()
    yield from _of_sequences()
    yield from _of_lines()
    yield from _of_channels()
    yield from _of_memory()


def _of_heads() -> Iterator[Rule]:
    yield _head("the first head", lambda h, _: h * 0)
    yield _head("the first head of its group", lambda h, at: h - h % at.group)
    yield _head("the last head of its group", lambda h, at: h - h % at.group + at.group - 1)
    yield _head("head h + 1", lambda h, _: h + 1)
    yield _head("head h - 1", lambda h, _: h - 1)
    yield _head("head h // group", lambda h, at: h // at.group)
    yield _head("head h % (number of kv heads)", lambda h, at: h % _kv_heads(at))
    yield _head("head h * group", lambda h, at: h * at.group)
    yield _head(
        "the head that the order (member, kv head) gives",
        lambda h, at: h % _kv_heads(at) * at.group + h // _kv_heads(at),
    )
    yield _head(
        "the head that the order (kv head, member) gives, read where heads stand by (member, kv head)",
        lambda h, at: h % at.group * _kv_heads(at) + h // at.group,
    )
    yield _head("the head in reverse order", lambda h, at: at.sizes[1] - 1 - h)
    yield _head(
        "the member of its group in reverse order", lambda h, at: h - h % at.group + at.group - 1 - h % at.group
    )
    yield _head("the other head of its pair", lambda h, _: h ^ 1)
    yield _head("the last head", lambda h, at: h * 0 + at.sizes[1] - 1)


def _of_sequences() -> Iterator[Rule]:
    yield _sequence("the first sequence", lambda b, _: b * 0)
    yield _sequence("sequence b + 1", lambda b, _: b + 1)
    yield _sequence("sequence b - 1", lambda b, _: b - 1)
    yield _sequence("the sequence in reverse order", lambda b, at: at.sizes[0] - 1 - b)
    yield _sequence("the last sequence", lambda b, at: b * 0 + at.sizes[0] - 1)


def _of_lines() -> Iterator[Rule]:
    for step in _SHIFTS:
        yield _line(f"{{line}} i + {step}", lambda i, _, n=step: i + n)  # type: ignore[misc]
        yield _line(f"{{line}} i - {step}", lambda i, _, n=step: i - n)  # type: ignore[misc]
    yield _line("{line} i + Sk - Sq", lambda i, at: i + at.longer)
    yield _line("{line} i - (Sk - Sq)", lambda i, at: i - at.longer)
    yield _line("the first {line}", lambda i, _: i * 0)
    yield _line("the last {line}", lambda i, at: i * 0 + at.sizes[2] - 1)
    yield _line("the {line} in reverse order", lambda i, at: at.sizes[2] - 1 - i)
    yield _line("{line} i + 1, the first one after the last", lambda i, at: (i + 1) % at.sizes[2])
    yield _line("{line} i - 1, the last one before the first", lambda i, at: (i - 1) % at.sizes[2])
    for step in _STEPS:
        yield _line(f"{{line}} i % {step}", lambda i, _, n=step: i % n)  # type: ignore[misc]
        yield _line(f"{{line}} i // {step}", lambda i, _, n=step: i // n)  # type: ignore[misc]
        yield _line(f"{{line}} i * {step}", lambda i, _, n=step: i * n)  # type: ignore[misc]
        yield _line(f"the first {{line}} of its {step}", lambda i, _, n=step: i - i % n)  # type: ignore[misc]
        yield _line(f"the last {{line}} of its {step}", lambda i, _, n=step: i - i % n + n - 1)  # type: ignore[misc]
        yield _line(f"the {{line}} in reverse order among its {step}", lambda i, _, n=step: i + n - 1 - 2 * (i % n))  # type: ignore[misc]
        words = f"the {{line}} at the same place of its tile of {step}, tiles counted from the last one"
        yield _line(words, lambda i, at, n=step: ((at.sizes[2] - 1) // n - i // n) * n + i % n)  # type: ignore[misc]
        yield _line(f"{{line}} i + {step}, the first ones after the last", lambda i, at, n=step: (i + n) % at.sizes[2])  # type: ignore[misc]
        yield _line(f"{{line}} i - {step}, the last ones before the first", lambda i, at, n=step: (i - n) % at.sizes[2])  # type: ignore[misc]
    for step in (1, 2, 4, 8, 16, 32, 64):
        yield _line(f"{{line}} i ^ {step}", lambda i, _, n=step: i ^ n)  # type: ignore[misc]


def _of_channels() -> Iterator[Rule]:
    for step in (1, 2, 4, 8, 16, 32, 64):
        yield _channel(f"{{channel}} c ^ {step}", lambda c, _, n=step: c ^ n)  # type: ignore[misc]
        yield _channel(f"{{channel}} c + {step}", lambda c, _, n=step: c + n)  # type: ignore[misc]
        yield _channel(f"{{channel}} c - {step}", lambda c, _, n=step: c - n)  # type: ignore[misc]
        yield _channel(f"{{channel}} c % {step}", lambda c, _, n=step: c % n)  # type: ignore[misc]
    yield _channel("the {channel} in reverse order", lambda c, at: at.sizes[3] - 1 - c)
    yield _channel("the same {channel} of the other half", lambda c, at: (c + at.sizes[3] // 2) % at.sizes[3])
    yield _channel(
        "{channel} c // 2 of the first half for even c, of the second half for odd c",
        lambda c, at: c % 2 * (at.sizes[3] // 2) + c // 2,
    )
    yield _channel(
        "{channel} 2 c of the first half, 2 c - C + 1 of the second half",
        lambda c, at: torch.where(c < at.sizes[3] // 2, 2 * c, 2 * c - at.sizes[3] + 1),
    )


def _of_memory() -> Iterator[Rule]:
    """Tensors that are written in one layout and read in another one."""
    yield Rule("the head h and {line} i that stand at i * H + h of memory", _heads_before_lines)
    yield Rule("number i * H + h in the order of heads and {line}s", _lines_before_heads)
    yield Rule("the sequence b and head h that stand at h * B + b of memory", _heads_first)
    yield Rule("number h * B + b in the order of sequences and heads", _sequences_first)
    yield Rule("the {line} i and {channel} c that stand at c * S + i of memory", _channels_before_lines)
    yield Rule("number c * S + i in the order of {line}s and {channel}s", _lines_before_channels)
    yield Rule(
        "packed row member * Sq + row of its group (packed row r is row r // group of member r % group)", _unpacked
    )
    yield Rule("number row * group + member in the order of the members of its group and their rows", _packed)
    for step in _STEPS:
        words = f"the head h and {{line}} i that stand at h * ceil(S / {step}) * {step} + i of memory"
        yield Rule(words, lambda at, n=step: _padded(at, n))  # type: ignore[misc]
        words = f"number h * ceil(S / {step}) * {step} + i in the order of heads and {{line}}s"
        yield Rule(words, lambda at, n=step: _unpadded(at, n))  # type: ignore[misc]


def _heads_before_lines(at: At) -> At:
    """Written `[S, H]`, read `[H, S]`."""
    flat = at.h * at.sizes[2] + at.i
    return at._replace(h=flat % at.sizes[1], i=flat // at.sizes[1])


def _lines_before_heads(at: At) -> At:
    """Written `[H, S]`, read `[S, H]`."""
    flat = at.i * at.sizes[1] + at.h
    return at._replace(h=flat // at.sizes[2], i=flat % at.sizes[2])


def _unpacked(at: At) -> At:
    """Written by number of the head in its group, then row; read by row, then head of the group."""
    flat = at.h % at.group * at.sizes[2] + at.i
    return at._replace(h=at.h - at.h % at.group + flat % at.group, i=flat // at.group)


def _packed(at: At) -> At:
    """The other way round."""
    flat = at.i * at.group + at.h % at.group
    return at._replace(h=at.h - at.h % at.group + flat // at.sizes[2], i=flat % at.sizes[2])


def _heads_first(at: At) -> At:
    """Written `[H, B]`, read `[B, H]`."""
    flat = at.b * at.sizes[1] + at.h
    return at._replace(h=flat // at.sizes[0], b=flat % at.sizes[0])


def _sequences_first(at: At) -> At:
    """Written `[B, H]`, read `[H, B]`."""
    flat = at.h * at.sizes[0] + at.b
    return at._replace(b=flat // at.sizes[1], h=flat % at.sizes[1])


def _channels_before_lines(at: At) -> At:
    """Written `[C, S]`, read `[S, C]`."""
    flat = at.i * at.sizes[3] + at.c
    return at._replace(c=flat // at.sizes[2], i=flat % at.sizes[2])


def _lines_before_channels(at: At) -> At:
    """Written `[S, C]`, read `[C, S]`."""
    flat = at.c * at.sizes[2] + at.i
    return at._replace(c=flat % at.sizes[3], i=flat // at.sizes[3])


def _padded(at: At, tile: int) -> At:
    """Written with padded heads, read without."""
    flat, width = (at.b * at.sizes[1] + at.h) * at.sizes[2] + at.i, -(-at.sizes[2] // tile) * tile
    head, line = flat // width, flat % width
    return at._replace(b=head // at.sizes[1], h=head % at.sizes[1], i=line)


def _unpadded(at: At, tile: int) -> At:
    """Written without padding, read with padded heads."""
    width = -(-at.sizes[2] // tile) * tile
    flat = (at.b * at.sizes[1] + at.h) * width + at.i
    head, line = flat // at.sizes[2], flat % at.sizes[2]
    return at._replace(b=head // at.sizes[1], h=head % at.sizes[1], i=line)
