"""Declarations of the kernel of `kernels.py`, and the interpreter around every test."""

import pytest

from flashverify import Supports, corrected_interpreter, parse_case
from flashverify.subjects import has_gpu

SUPPORTS = Supports(
    dtypes=("fp32",),
    masks=("causal",),
    causal=("top-left",),
    gqa=False,
    equal_dims=True,
    dim_multiple=16,
    dim_max=16,
    contiguous=True,
)
CASE = parse_case(
    "fv1 seq_q=20 seq_k=20 heads_q=2 heads_kv=2 dim_qk=16 dim_v=16 dtype=fp32 causal=top-left backward=no"
)

collect_ignore = ["kernels.py"]


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled here")
    with corrected_interpreter():
        yield
