"""Value regimes for the tests of the bounds: inputs in the kernel's dtype."""

import torch
from torch import Tensor

REGIMES = (
    "normal", "tiny", "subnormal", "large", "logits1e2", "logits1e3", "logits1e4", "logits1e5", "negative", "near_ties", "exact_ties",
    "one_hot", "ascending", "duplicate", "v_is_k", "v_constant", "v_cancels", "outlier", "integers", "zeros", "v_max",
)  # fmt: skip


def draw(
    regime: str, dtype: torch.dtype, shape: tuple[int, int, int, int, int, int, int], seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v, do for `(B, Hq, Hkv, Sq, Sk, D, Dv)`."""
    B, Hq, Hkv, Sq, Sk, D, Dv = shape
    gen = torch.Generator().manual_seed(seed)

    def randn(*size: int) -> Tensor:
        return torch.randn(*size, generator=gen, dtype=torch.float64)

    q, k, v, do = randn(B, Hq, Sq, D), randn(B, Hkv, Sk, D), randn(B, Hkv, Sk, Dv), randn(B, Hq, Sq, Dv)
    biggest = torch.finfo(dtype).max
    match regime:
        case "tiny":
            q, k, v, do = (x * 1e-4 for x in (q, k, v, do))
        case "subnormal":
            small = torch.finfo(dtype).tiny
            q, k, v, do = q, k, v * small, do * small
        case "large":
            q, k, v, do = q * 4, k * 4, v * 300, do * 3
        case "logits1e2" | "logits1e3" | "logits1e4" | "logits1e5":
            factor = (float(regime[6:]) / D**0.5) ** 0.5 * D**0.25
            q, k = q * factor, k * factor
        case "negative":
            q, k = q.abs() * 6, -k.abs() * 6
        case "near_ties":
            k = k[:, :, :1] * 8 + k * 1e-3
            q = q * 8
        case "exact_ties":
            k, v = k[:, :, :1].expand_as(k).clone() * 4, v.abs()
        case "one_hot":
            q, k = q.sign() * 16, k.sign() * 16
        case "ascending":
            k = k[:, :, :1] * torch.arange(Sk, dtype=torch.float64)[:, None] / max(1, Sk) * 4
            q = k[:, :, :1].repeat_interleave(Hq // Hkv, 1) * 0 + q.abs() * k[:, :, -1:].sign().repeat_interleave(
                Hq // Hkv, 1
            )
        case "duplicate":
            k, v = k[:, :, torch.arange(Sk) % 3], v[:, :, torch.arange(Sk) % 3]
        case "v_is_k":
            v = k[..., torch.arange(Dv) % D].clone()
        case "v_constant":
            v = torch.ones_like(v) * 1.2345
        case "v_cancels":
            v = torch.where(torch.arange(Sk)[:, None] % 2 == 0, 1000.0, -1000.0) + v * 0.01
        case "outlier":
            q[..., 0], k[..., 0], v[..., 0] = q[..., 0] * 50, k[..., 0] * 50, v[..., 0] * 100
        case "integers":
            q, k, v, do = (torch.round(x * 2) for x in (q, k, v, do))
        case "zeros":
            q, k = q * 0, k * 0
        case "v_max":
            v = v.sign() * biggest
    return tuple(x.clamp(-biggest, biggest).to(dtype) for x in (q, k, v, do))  # type: ignore[return-value]
