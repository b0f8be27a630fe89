"""Many queries over a cache in codes and over a latent cache, beside attention over values."""

from __future__ import annotations

from typing import Any

from speed_rows.row import Built, Row, normal

__all__ = ["codes", "latent", "rows"]

_DIM, _HEADS = 128, 16


def rows(small: bool) -> list[Row]:
    """Formats of codes, and a latent cache."""
    length = 64 if small else 4096
    found = [
        Row("Prefill over codes, 4,096 tokens", name, "prefill:codes", {"length": length, "name": name})
        for name in ("e4m3", "int8", "int4")
    ]
    theme = "Prefill over a latent cache, 4,096 tokens, 576 and 512 channels"
    return [*found, Row(theme, f"{_HEADS} heads", "prefill:latent", {"length": length})]


def codes(*, device: str, length: int, name: str) -> Built:
    """`quantised_attention` with a scale a head, beside `attention` in fp16."""
    import torch

    import flashverify_kernels as kernels
    from flashverify_kernels.quantised import Quantised, quantised_attention

    heads = _HEADS if device == "cuda" else 1
    q, *whole = (normal(1, heads, length, _DIM, dtype="fp16", device=device) for _ in "qkv")
    width = _DIM // 2 if name == "int4" else _DIM
    bits = torch.randint(0, 120, (1, heads, length, width), dtype=torch.uint8, device=device)
    scale = torch.full((1, heads, 1), 0.03125, device=device)
    k = v = Quantised(codes=bits, scale=scale, format=name, keys_per_scale=length)
    calls: dict[str, Any] = {
        "bundled": lambda: quantised_attention(q, k, v),
        "attention in fp16": lambda: kernels.attention(q, *whole),
    }
    return Built(calls, 4.0 * heads * length * length * _DIM, "TFLOP/s")


def latent(*, device: str, length: int) -> Built:
    """`latent_attention` of as many queries as keys."""
    import flashverify_kernels as kernels

    heads = _HEADS if device == "cuda" else 1
    q = normal(1, heads, length, 576, dtype="fp16", device=device)
    kv = normal(1, 1, length, 576, dtype="fp16", device=device)
    work = 2.0 * heads * length * length * (576 + 512)
    return Built({"bundled": lambda: kernels.latent_attention(q, kv, dim_v=512)}, work, "TFLOP/s")
