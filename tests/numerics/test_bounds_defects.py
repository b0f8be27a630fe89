"""A planted defect exceeds its bound, by about the factor that docs/bounds.md, section 17, states."""

import pytest
import torch

from flashverify.numerics import Form
from tests.numerics.emulator import Emulator
from tests.numerics.ratios import measure
from tests.numerics.regimes import draw

N, D = 256, 64


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize(
    ("defect", "outputs", "fp16", "bf16"),
    [
        ("lse_base", ("lse",), 1e4, 1e4),
        ("alpha", ("o", "lse"), 1e3, 1e3),
        ("alpha_acc", ("o",), 200, 30),
        ("dk_scale", ("dk",), 200, 30),
        ("causal", ("o", "lse"), 1e3, 1e3),
        ("delta", ("dq", "dk"), 30, 5),
        ("delta", ("dq|", "dk|"), 300, 50),
        ("unmasked", ("dv", "dv|"), 3, 1),
        ("key", ("lse",), 50, 50),
        ("scale", ("lse",), 10, 10),
    ],
)
def test_defect_is_over_the_bound(
    defect: str, outputs: tuple[str, ...], fp16: float, bf16: float, dtype: torch.dtype
) -> None:
    q, k, v, do = draw("normal", dtype, (1, 1, 1, N, N, D, D), 11)
    causal = torch.ones(N, N, dtype=torch.bool).tril()
    kernel = Emulator(dtype=dtype, scale=D**-0.5, block_n=64, defects=frozenset((defect,)))
    if defect == "causal":
        run = kernel.forward
        kernel.forward = lambda q, k, v, vis: run(q, k, v, vis.tril(-1) | torch.eye(N, dtype=torch.bool)[:1])  # type: ignore[method-assign]
    ratios = measure(kernel, q, k, v, do, scale=D**-0.5, vis=causal, form=Form(block_n=64))
    assert max(ratios[name] for name in outputs) > (fp16 if dtype == torch.float16 else bf16)
