"""Three subjects as people have them: each is narrow, and says so."""

import math

import torch

from flashverify import Contract, Supports, subject
from tests.subjects.declared.kernel import forward

TILES = (16, 32, 64, 128)
LEAKY = {"block_m": 64, "block_n": 128}


def launch(p, *, block_m, block_n, leak=False):
    """O and the natural LSE."""
    case, packed = p.case, p.cu_q is not None
    o = torch.empty(case.shape_o, dtype=p.q.dtype, device=p.q.device)
    lse = torch.empty(case.shape_o[:3], dtype=torch.float32, device=p.q.device)
    cu_q = p.cu_q if packed else torch.tensor([0, case.seq_q] + [0] * case.batch, dtype=torch.int32, device=p.q.device)
    cu_k = p.cu_k if packed else torch.tensor([0, case.seq_k] + [0] * case.batch, dtype=torch.int32, device=p.q.device)
    sequences = len(p.cu_q) - 1 if packed else case.batch
    grid = (-(-max(p.max_q, 1) // block_m), case.heads_q, sequences)
    strides = [s for x in (p.q, p.k, p.v, o) for s in x.stride()[:3]]
    left = None if p.window is None else p.window[0]
    forward[grid](
        *(p.q, p.k, p.v, o, lse, cu_q, cu_k),
        p.scale * math.log2(math.e),
        0 if left is None else left,
        case.heads_q // case.heads_kv,
        case.seq_q,
        *strides,
        PACKED=packed,
        AT_END=p.causal == "bottom-right",
        CAUSAL=p.causal is not None,
        WINDOW=left is not None,
        LEAK=leak,
        D=case.dim_qk,
        DV=case.dim_v,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
    )
    return o, lse


DIMS = {"dtypes": ("fp32",), "dim_multiple": 16, "dim_max": 64, "non_finite": False}
"""Tiles of a power of two: of 16, 32 and 64 channels."""


def other_dims(case):
    dims = {case.dim_qk, case.dim_v} - {16, 32, 64}
    return f"dim={dims.pop()} is no power of two" if dims else None


@subject(
    supports=Supports(
        **DIMS,
        masks=("packed", "causal", "window"),
        required_masks=("packed", "causal"),
        causal=("bottom-right",),
        window_sides=("left",),
        seq_q=range(1, 5),
        seq_k=range(1, 4097),
        scales=("positive",),
        backward=False,
        also=other_dims,
    ),
    contract=Contract(padding="undefined"),
)
def packed_decode(p):
    """A few rows at the end of each packed sequence, with a window to the left."""
    return launch(p, block_m=16, block_n=32)


@subject(
    supports=Supports(
        **(DIMS | {"non_finite": True}),
        masks=("causal",),
        seq_multiple=128,
        square=True,
        heads_q=(8, 32),
        group_sizes=(1, 4),
        scales=("default",),
        contiguous=True,
        layouts=("bhsd",),
        equal_dims=True,
    ),
    device="cpu",
)
def square_tiles(p):
    """Whole tiles of contiguous tensors; what else it is given raises."""
    heads, group, rows = p.q.shape[1], p.q.shape[1] // p.k.shape[1], p.q.shape[2]
    assert rows == p.k.shape[2]
    assert rows % 128 == 0
    assert heads in (8, 32)
    assert group in (1, 4)
    assert all(x is None or x.is_contiguous() for x in (p.q, p.k, p.v, p.do))
    k, v = (x.repeat_interleave(group, 1) for x in (p.k, p.v))
    s = p.q @ k.mT / math.sqrt(p.q.shape[3])
    if p.causal is not None:
        s = s.masked_fill(~torch.ones(rows, rows, dtype=torch.bool).tril(), -torch.inf)
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


def tile_pairs(*, even):
    """A forward whose tiles of 64 rows and 128 keys leak, as those of Triton's tutorial 06 once did."""

    @subject(
        name="tile_pairs",
        supports=Supports(
            **DIMS,
            masks=("causal",),
            causal=("top-left",),
            launch=(("block_m", TILES), ("block_n", TILES)),
            even_launches=even,
            backward=False,
            also=other_dims,
        ),
    )
    def kernel(p):
        config = dict(p.case.launch) or {"block_m": 64, "block_n": 64}
        return launch(p, **config, leak=config == LEAKY)

    return kernel
