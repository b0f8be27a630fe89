"""What `gpu_launches.py` launches with plans and without."""

from __future__ import annotations

import itertools
from typing import Any

import torch


def normal(heads: int, length: int, *, gap: int = 0) -> torch.Tensor:
    return torch.randn(2, heads, length, 64 + gap, device="cuda").half()[..., :64].requires_grad_()


def problems() -> list[tuple[str, tuple[torch.Tensor, ...], dict[str, Any]]]:
    """Forty problems of mixed options."""
    lengths = torch.tensor([100, 61], dtype=torch.int32, device="cuda")
    slopes = torch.rand(4, device="cuda")
    options: list[dict[str, Any]] = [
        {},
        {"causal": "top-left"},
        {"causal": "bottom-right", "window": (40, 0)},
        {"key_lengths": lengths, "query_lengths": lengths},
        {"softcap": 20.0, "scale": 0.3},
        {"alibi_slopes": slopes, "causal": "bottom-right"},
        {"sink": torch.rand(4, device="cuda").requires_grad_()},
        {"bias": torch.randn(1, 4, 120, 130, device="cuda").half(), "causal": "top-left"},
        {"layout": "bshd"},
        {"scale": -0.0},
    ]
    found = []
    for (n, each), (batch, gap) in itertools.product(enumerate(options), ((2, 0), (1, 0), (2, 8), (1, 64))):
        if batch == 1 and "key_lengths" in each:
            each = dict.fromkeys(each, lengths[:1])
        q, k, v = (normal(heads, s, gap=gap)[:batch] for heads, s in ((4, 120), (2, 130), (2, 130)))
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        if each.get("layout") == "bshd":
            q, k, v = (x.detach().transpose(1, 2).requires_grad_() for x in (q, k, v))
        found.append((f"options {n}, batch {batch}, gap {gap}: {', '.join(each) or 'none'}", (q, k, v), each))
    return found


def decoding_problems() -> list[tuple[tuple[torch.Tensor, ...], dict[str, Any]]]:
    """K and V, contiguous and paged, for four heads in two sequences, and options."""
    table = torch.randperm(40, device="cuda", dtype=torch.int32).view(2, 20)
    pages = tuple(torch.randn(40, 16, 2, 64, device="cuda").half() for _ in "kv")
    whole = tuple(torch.randn(2, 2, 320, 64, device="cuda").half() for _ in "kv")
    lengths = torch.tensor([7, 320], dtype=torch.int32, device="cuda")
    return [
        (whole, {}),
        (whole, {"n_splits": 1}),
        (whole, {"n_splits": 3, "causal": "bottom-right", "key_lengths": lengths}),
        (whole, {"softcap": 5.0, "alibi_slopes": torch.rand(4, device="cuda")}),
        (pages, {"block_table": table, "key_lengths": lengths}),
    ]


def moved_copy(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return y.copy_(x.detach()).requires_grad_()
