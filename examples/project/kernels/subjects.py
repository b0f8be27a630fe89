"""The kernels as subjects of flashverify."""

from flashverify import Supports, subject

from .attention import attention

DECLARED = Supports(
    dtypes=("fp16", "fp32"),
    masks=("causal",),
    causal=("top-left",),
    gqa=False,
    equal_dims=True,
    contiguous=True,
    backward=False,
)


@subject(supports=DECLARED)
def right(p):
    return attention(p.q, p.k, p.v, p.scale, p.causal is not None)


@subject(supports=DECLARED)
def wrong(p):
    return attention(p.q, p.k, p.v, p.scale, p.causal is not None, slip=1)
