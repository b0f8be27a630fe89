"""Masks that leave pairs out: the time beside the dense or causal time of the same sizes, over the share of pairs that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speed_rows.row import Built, Row, normal

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

__all__ = ["blocks", "chosen", "rows", "uneven", "window"]

_DIM, _BLOCK = 128, 128
_OF_DENSE = "of the dense time for each pair"


def rows(small: bool) -> list[Row]:
    """Windows, patterns of blocks, chosen keys, and packed sequences of uneven lengths."""
    length, found = 256 if small else 16384, []
    for direction in ("forward", "backward"):
        for left in (64,) if small else (512, 1024, 2048, 4096):
            values = {"length": length, "left": left, "direction": direction}
            found.append(
                Row(f"Windows, {length:,} tokens, causal", f"{direction}, {left:,} keys", "sparse:window", values)
            )
        patterns = {length: (2,) if small else (1, 2, 4, 8, 16, 20)} | ({} if small else {65536: (8, 16, 20)})
        for tokens, shares in patterns.items():
            for one_in in shares:
                values = {"length": tokens, "one_in": one_in, "direction": direction}
                what = f"{direction}, 1 block in {one_in} live" if one_in > 1 else f"{direction}, all blocks live"
                found.append(Row(f"Blocks of {_BLOCK} x {_BLOCK}, {tokens:,} tokens", what, "sparse:blocks", values))
        for one_in in (2,) if small else (4, 16):
            values = {"length": length, "one_in": one_in, "direction": direction}
            theme = f"Keys chosen by index, blocks of 64, {length:,} tokens"
            found.append(Row(theme, f"{direction}, 1 block in {one_in}", "sparse:chosen", values))
        theme = "Packed sequences of 16 to 8,192 tokens, causal"
        found.append(Row(theme, direction, "sparse:uneven", {"total": 512 if small else 65536, "direction": direction}))
    return found


def _tensors(device: str, length: int, heads: int = 16) -> list[torch.Tensor]:
    heads = heads if device == "cuda" else 1
    return [normal(1, heads, length, _DIM, dtype="fp16", device=device, grad=True) for _ in range(3)]


def _passes(ways: dict[str, Callable[[], torch.Tensor]], inputs: Any, direction: str, share: float) -> Built:
    """The pass of each way; the first has `share` of the pairs of the second."""
    import torch

    def of(way: Callable[[], torch.Tensor]) -> Callable[[], object]:
        if direction == "backward":
            o = way()
            do = torch.ones_like(o)
            return lambda: torch.autograd.grad(o, inputs, do, retain_graph=True)

        def call() -> object:
            with torch.no_grad():
                return way()

        return call

    return Built({name: of(way) for name, way in ways.items()}, 0.0, _OF_DENSE, share)


def window(*, device: str, length: int, left: int, direction: str) -> Built:
    """A causal window of `left` keys and the query's own beside causal attention."""
    import flashverify_kernels as kernels

    q, k, v = _tensors(device, length)
    seen = left + 1
    share = (length * seen - seen * (seen - 1) / 2) / (length * (length + 1) / 2)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "bundled": lambda: kernels.attention(q, k, v, causal="top-left", window=(left, None)),
        "dense": lambda: kernels.attention(q, k, v, causal="top-left"),
    }
    return _passes(ways, (q, k, v), direction, share)


def blocks(*, device: str, length: int, one_in: int, direction: str) -> Built:
    """A random pattern with as many live blocks in every row, beside dense attention."""
    import torch

    import flashverify_kernels as kernels

    q, k, v = _tensors(device, length)
    count = length // _BLOCK
    live = torch.rand(count, count, generator=torch.Generator().manual_seed(1)).argsort(-1) < count / one_in
    mask = kernels.BlockMask.from_bool(live.view(1, 1, count, count).to(device), _BLOCK, _BLOCK)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "bundled": lambda: kernels.attention(q, k, v, blocks=mask),
        "dense": lambda: kernels.attention(q, k, v),
    }
    return _passes(ways, (q, k, v), direction, float(live.double().mean()))


def chosen(*, device: str, length: int, one_in: int, direction: str) -> Built:
    """Lists of blocks of 64 keys, one for 64 queries, beside dense attention."""
    import torch

    import flashverify_kernels as kernels

    q, k, v = _tensors(device, length)
    count = length // 64
    entries = max(1, count // one_in)
    order = torch.rand(count, count, generator=torch.Generator().manual_seed(1)).argsort(-1)[:, :entries]
    lists = order.view(1, 1, count, entries).to(device, torch.int32)
    selection = kernels.Selection(indices=lists, rows=64, keys=64)

    def own() -> torch.Tensor:
        found = kernels.selected_attention(q, k, v, selection)
        assert not isinstance(found, tuple)
        return found

    ways = {"bundled": own, "dense": lambda: kernels.attention(q, k, v)}
    return _passes(ways, (q, k, v), direction, entries / count)


def uneven(*, device: str, total: int, direction: str) -> Built:
    """Packed sequences whose lengths are spread over powers of two, beside sequences of 4,096 tokens with as many rows."""
    import torch

    import flashverify_kernels as kernels

    heads, even = (16, 4096) if device == "cuda" else (1, 128)
    lengths: list[int] = []
    while sum(lengths) < total:
        lengths.append(min(16 << len(lengths) * 7 % 10, total - sum(lengths)))
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)
    q, k, v = (normal(total, heads, _DIM, dtype="fp16", device=device, grad=True) for _ in range(3))
    batch = total // even
    dense = [x.detach().view(batch, even, heads, _DIM).requires_grad_() for x in (q, k, v)]

    def own() -> torch.Tensor:
        return kernels.attention_varlen(q, k, v, ends, ends, max_q=max(lengths), max_k=max(lengths), causal="top-left")[
            0
        ]

    def whole() -> torch.Tensor:
        return kernels.attention(*dense, causal="top-left", layout="bshd")

    share = sum(n * (n + 1) for n in lengths) / (batch * even * (even + 1))
    built = _passes({"bundled": own}, (q, k, v), direction, share)
    return Built(built.calls | _passes({"dense": whole}, dense, direction, share).calls, 0.0, _OF_DENSE, share)
