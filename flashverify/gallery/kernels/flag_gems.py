"""FlagGems' attention in Triton."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import triton

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import dims_among, triton_form
from flashverify.gallery.place import modules_of
from flashverify.launching.pretend import pretend_cuda
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem


def _compiles(config: Any) -> bool:
    """Whether the static assertions of the backward hold; a tuner on a GPU passes over other configurations."""
    tiles = config.kwargs
    rows, keys = tiles.get("BLOCK_M1", 1), tiles.get("BLOCK_N2", 1)
    return bool(tiles.get("BLOCK_N1", 1) % rows == 0 and tiles.get("BLOCK_M2", 1) % keys == 0)


def _tuner(configs: Any, key: Any, **_: Any) -> Any:
    """Triton's own autotuner in place of the package's, which needs a GPU to measure on."""
    return triton.autotune(configs=list(filter(_compiles, configs)), key=key)


os.environ.setdefault("GEMS_VENDOR", "nvidia")
with pretend_cuda((9, 0)):
    module = modules_of(
        release("flag_gems"),
        {"flag_gems.utils": {"libentry": lambda: lambda kernel: kernel, "libtuner": _tuner}},
    )
    attention = module("flag_gems.ops.attention")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal",),
        causal=("top-left",),
        square=True,
        seq_multiple=128,
        equal_dims=True,
        contiguous=True,
        also=dims_among(64, 128),
    ),
    contract=Contract(lse_base=None),
    form=triton_form(prescale_bwd="k"),
    autotuned=(attention._attn_fwd, attention._attn_bwd),
    pretend_cuda=(9, 0),
)
def sdpa(p: Problem) -> Any:
    return attention.scaled_dot_product_attention(
        p.q, p.k, p.v, is_causal=p.causal is not None, scale=p.scale, enable_gqa=True
    )
