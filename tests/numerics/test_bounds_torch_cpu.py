"""PyTorch's own CPU flash attention, a kernel that nobody here wrote, stays below the bound of its form."""

import pytest
import torch
from torch import Tensor

from flashverify.numerics import Form
from tests.fast_tier import fast_one_in
from tests.numerics.ratios import measure
from tests.numerics.regimes import REGIMES, draw

ATEN = torch.ops.aten


class TorchCpuFlash:
    def __init__(self, scale: float, causal: bool) -> None:
        self.scale, self.causal = scale, causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, vis: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        o, lse = ATEN._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, self.causal, scale=self.scale)
        return o, lse, lse

    def backward(
        self, q: Tensor, k: Tensor, v: Tensor, do: Tensor, o: Tensor, kept: Tensor, vis: Tensor, dlse: Tensor | None
    ) -> tuple[Tensor, ...]:
        grads = ATEN._scaled_dot_product_flash_attention_for_cpu_backward(
            do, q, k, v, o, kept, 0.0, self.causal, scale=self.scale
        )
        return (do.float() * o.float()).sum(-1), *grads


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", fast_one_in(3, ["fp16", "fp32", "bf16"]))
@pytest.mark.parametrize("regime", fast_one_in(3, REGIMES))
def test_torch_cpu_flash(regime: str, name: str) -> None:
    # Its 16-bit backward adds dK and dV into the output itself, once a block of queries, and its 16-bit exponential is a polynomial.
    wide = name == "fp32"
    form = Form(exp="exp" if wide else "poly", architecture="ieee", grad_accum=name, grad_accum_of="all")
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]
    for seed, (N, D) in enumerate(((1, 8), (33, 32), (100, 64), (130, 16))):
        q, k, v, do = draw(regime, dtype, (1, 2, 2, N, N, D, D), seed)
        vis = torch.ones(N, N, dtype=torch.bool).tril() if seed % 2 else None
        ratios = measure(TorchCpuFlash(D**-0.5, vis is not None), q, k, v, do, scale=D**-0.5, vis=vis, form=form)
        over = {key: value for key, value in ratios.items() if key not in ("exempt", "vague") and not value < 1}
        assert not over
