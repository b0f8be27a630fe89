"""Defects planted in softcap, biases, sink and dropout exceed their bounds."""

from typing import Any

import pytest
import torch

from flashverify.numerics import Form
from tests.fast_tier import fast_one_in
from tests.numerics.family import Family
from tests.numerics.family_cases import distance
from tests.numerics.ratios import measure
from tests.numerics.regimes import draw

B, H, N, D = 2, 4, 128, 64


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", fast_one_in(2, [torch.float16, torch.bfloat16], ids=str))
@pytest.mark.parametrize(
    ("defect", "feature", "outputs", "fp16", "bf16"),
    [
        ("bias_key", "bias", ("lse",), 100, 100),
        ("bias_key", "bias", ("o", "dv"), 30, 5),
        ("slope", "alibi", ("lse",), 100, 100),
        ("gain", "softcap", ("dq", "dk"), 30, 5),
        ("gain", "softcap", ("dq|", "dk|"), 100, 20),
        ("sink_lse", "sink", ("lse",), 1e3, 1e3),
        ("sink_lse", "sink", ("dv",), 10, 3),
        ("keep_shift", "dropout", ("dv|", "dq|"), 100, 20),
        ("dp_scale", "dropout", ("dq|", "dk|"), 100, 20),
        ("dp_scale", "dropout", ("dq", "dk"), 20, 3),
        ("dbias_batch", "bias", ("dbias",), 30, 5),
        ("dbias_batch", "bias", ("dbias|",), 100, 20),
        ("dsink", "sink", ("dsink",), 1.5, 0.0),
        ("dsink", "sink", ("dsink|",), 10, 10),
    ],
)
def test_defect_is_over_the_bound(
    defect: str, feature: str, outputs: tuple[str, ...], fp16: float, bf16: float, dtype: torch.dtype
) -> None:
    gen = torch.Generator().manual_seed(3)
    q, k, v, do = draw("normal", dtype, (B, H, 2, N, N, D, D), 11)
    played: dict[str, Any] = {}
    features: dict[str, Any] = {}
    if feature == "softcap":
        features["softcap"] = played["softcap"] = 2.0
    elif feature == "bias":
        features["biases"] = played["biases"] = (torch.randn(1, H, N, N, generator=gen).to(dtype),)
    elif feature == "alibi":
        played["slopes"] = torch.tensor([2.0 ** (-8 * (h + 1) / H) for h in range(H)])
        features["biases"] = (-(played["slopes"].double()[:, None, None] * distance(N, N)).unsqueeze(0),)
    elif feature == "sink":
        features["sink"] = played["sink"] = torch.randn(H, generator=gen)
    else:
        features["dropout"] = played["p"] = 0.2
        features["keep"] = played["keep"] = torch.rand(B, H, N, N, generator=gen) >= 0.2
    ratios = measure(
        Family(dtype=dtype, scale=D**-0.5, block_n=64, defects=frozenset((defect,)), **played), q, k, v, do,
        scale=D**-0.5, vis=torch.ones(N, N, dtype=torch.bool).tril(), form=Form(block_n=64), features=features,
        bias_shape=(1, H, N, N) if feature == "bias" else None,
    )  # fmt: skip
    assert max(ratios[name] for name in outputs) > (fp16 if dtype == torch.float16 else bf16), ratios
