"""Accesses to memory, counted in the interpreter: what the kernels load and store of one head, by length, tile and live share.

    TRITON_INTERPRET=1 python -m curves_report.counting SIZES

prints points as JSON; SIZES is a `Sizes` as JSON. It is a process of its own, since a process has one mode of Triton.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from curves_report.record import Point
from flashverify.interpreter import count, faithful
from flashverify_kernels import BlockMask, Configs, LaunchConfig, Options
from flashverify_kernels.algorithms import Setting, paper_backward, paper_forward, standard_backward, standard_forward
from flashverify_kernels.launch import backward, forward

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DIRECTIONS", "Sizes", "counted", "live_blocks"]

DIRECTIONS = ("forward", "backward")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted, of one head.

    Attributes:
        dim: head dimension.
        lengths: of the curve over the length, in tiles of `tile` x `tile`.
        tiles: queries and keys of a tile, of the curve over the block size.
        block_length: tokens of that curve.
        shares: live shares of blocks of `tile` x `tile`.
        share_length: tokens of that curve.
        tile: queries and keys.
    """

    dim: int = 64
    lengths: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    tiles: tuple[int, ...] = (16, 32, 64, 128)
    block_length: int = 1024
    shares: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)
    share_length: int = 2048
    tile: int = 64

    def __str__(self) -> str:
        return (
            f"one head of {self.dim}; {self.block_length:,} tokens over the size of a tile, {self.share_length:,} over the live share, "
            f"tiles of {self.tile} x {self.tile} elsewhere"
        )


def live_blocks(count: int, heads: int, share: float, device: str = "cpu") -> torch.Tensor:
    """A random pattern, `[1, heads, count, count]` bool, of which that share is live; a smaller share is a part of a larger one."""
    generator = torch.Generator(device).manual_seed(0)
    drawn = torch.rand(1, heads, count, count, generator=generator, device=device)
    return drawn <= torch.quantile(drawn.flatten(), share)


def counted(sizes: Sizes) -> list[Point]:
    """All points; an open session of the interpreter is needed."""
    found = []
    for n, run in itertools.product(sizes.lengths, (_bundled, _paper, _standard)):
        found += _points("length", n, *run(n, sizes.dim, sizes.tile))
    for tile, run in itertools.product(sizes.tiles, (_bundled, _paper)):
        found += _points("block", tile, *run(sizes.block_length, sizes.dim, tile))
    for share in sizes.shares:
        live = live_blocks(sizes.share_length // sizes.tile, 1, share)
        blocks = BlockMask.from_bool(live, sizes.tile, sizes.tile)
        true_share = float(live.float().mean())
        found += _points("share", true_share, *_bundled(sizes.share_length, sizes.dim, sizes.tile, blocks))
    return found


def _points(curve: str, x: float, series: str, accesses: list[int]) -> list[Point]:
    return [
        Point(curve=curve, series=series, direction=direction, x=x, quantity="accesses", values=(float(number),))
        for direction, number in zip(DIRECTIONS, accesses, strict=True)
    ]


def _inputs(n: int, dim: int) -> list[torch.Tensor]:
    return [torch.zeros(1, 1, n, dim, dtype=torch.float16) for _ in range(4)]  # the values change no access


def _moved(call: Callable[[], Any]) -> tuple[Any, int]:
    """What the call returns, and the elements that it loads and stores."""
    with count() as launches:
        made = call()
    return made, sum(x.loads + x.stores for launch in launches for x in launch.traffic.values())


def _bundled(n: int, dim: int, tile: int, blocks: BlockMask | None = None) -> tuple[str, list[int]]:
    q, k, v, do = _inputs(n, dim)
    config = LaunchConfig(block_m=tile, block_n=tile, num_stages=1)
    options = Options(config=Configs(forward=config, dq=config, dkdv=config), blocks=blocks)
    made, there = _moved(lambda: forward(q, k, v, options))
    _, back = _moved(lambda: backward(do, q, k, v, made.o, made.lse2, options))
    return "bundled", [there, back]


def _paper(n: int, dim: int, tile: int) -> tuple[str, list[int]]:
    return "paper-flash", _algorithm(paper_forward, paper_backward, n, dim, tile)


def _standard(n: int, dim: int, tile: int) -> tuple[str, list[int]]:
    return "standard", _algorithm(standard_forward, standard_backward, n, dim, tile)


def _algorithm(there: Callable[..., Any], back: Callable[..., Any], n: int, dim: int, tile: int) -> list[int]:
    q, k, v, do = _inputs(n, dim)
    setting = Setting(scale=dim**-0.5, block_m=tile, block_n=tile)
    made, first = _moved(lambda: there(q, k, v, setting))
    return [first, _moved(lambda: back(do, q, k, v, made, setting))[1]]


if __name__ == "__main__":
    with faithful():
        sys.stdout.buffer.write(msgspec.json.encode(counted(msgspec.json.decode(sys.argv[1], type=Sizes))))
