"""Dense and causal attention, forward and backward, beside SDPA's backends and FlexAttention."""

from __future__ import annotations

import itertools
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from speed_rows.row import Built, Row, normal

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

__all__ = ["build", "rows"]

_TOKENS, _WIDTH = 16384, 2048
_PRODUCTS = {"forward": 2, "backward": 5}


def rows(small: bool) -> list[Row]:
    """Both passes over dtypes, head dims, masks, lengths and groups."""
    found = []
    lengths = (64,) if small else (4096, 1024, 16384)
    for length, group, dtype, causal, dim in itertools.product(
        lengths, (1, 8), ("fp16", "bf16"), (False, True), (64, 128, 256)
    ):
        if dim == 256 and (group, length) != (1, lengths[0]):
            continue
        for direction in _PRODUCTS:
            values = {"length": length, "group": group, "dtype": dtype, "causal": causal, "dim": dim}
            what = f"{direction}, {dtype}, D = {dim}{', causal' if causal else ''}"
            theme = f"{length:,} tokens" + (", eight query heads a kv head" if group > 1 else "")
            flex = group == 1 and length == lengths[0] and dtype == "fp16" and dim < 256
            found.append(Row(theme, what, "dense:build", values | {"direction": direction, "flex": flex}))
    return found


def build(
    *, device: str, length: int, group: int, dtype: str, causal: bool, dim: int, direction: str, flex: bool
) -> Built:
    """The pass by each implementation that takes it."""
    import flashverify_kernels as kernels

    batch, heads = max(1, _TOKENS // length), _WIDTH // dim
    if device == "cpu":
        batch, heads = 1, group
    q = normal(batch, heads, length, dim, dtype=dtype, device=device, grad=True)
    k, v = (normal(batch, heads // group, length, dim, dtype=dtype, device=device, grad=True) for _ in "kv")
    do = normal(batch, heads, length, dim, dtype=dtype, device=device)

    def own() -> torch.Tensor:
        return kernels.attention(q, k, v, causal="top-left" if causal else None, allow_interpreted_bf16=True)

    ways: dict[str, Callable[[], torch.Tensor]] = {"bundled": own}
    if device == "cuda":
        ways |= _torch(q, k, v, causal=causal, group=group)
        if flex:
            ways["FlexAttention"] = _flex(q, k, v, causal=causal)
    calls: dict[str, Callable[[], object]] = {}
    for name, way in ways.items():
        with nullcontext() if name == "bundled" else suppress(RuntimeError):  # how torch refuses a problem
            calls[name] = _backward(way(), (q, k, v), do) if direction == "backward" else _forward(way)
            calls[name]()
    pairs = length * (length + 1) / 2 if causal else length * length
    return Built(calls, 2.0 * _PRODUCTS[direction] * batch * heads * pairs * dim, "TFLOP/s")


def _forward(way: Callable[[], torch.Tensor]) -> Callable[[], object]:
    import torch

    def call() -> object:
        with torch.no_grad():
            return way()

    return call


def _backward(o: torch.Tensor, inputs: Any, do: torch.Tensor) -> Callable[[], object]:
    import torch

    return lambda: torch.autograd.grad(o, inputs, do, retain_graph=True)


def _torch(q: Any, k: Any, v: Any, *, causal: bool, group: int) -> dict[str, Callable[[], torch.Tensor]]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def by(backend: Any) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)

        return call

    return {"cuDNN": by(SDPBackend.CUDNN_ATTENTION), "FlashAttention 2": by(SDPBackend.FLASH_ATTENTION)}


def _flex(q: Any, k: Any, v: Any, *, causal: bool) -> Callable[[], torch.Tensor]:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled: Any = torch.compile(flex_attention)
    mask = None
    if causal:
        mask = create_block_mask(lambda _b, _h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device="cuda")
    return lambda: compiled(q, k, v, block_mask=mask)
