"""What launches of the kernels whose keys are chosen by index would compile, for a look at them without a GPU."""

import torch

from flashverify_kernels.config import Kind
from flashverify_kernels.decode_aot import split_constants
from flashverify_kernels.options import Precision
from flashverify_kernels.selected_launch import KERNELS, selected_config, selected_constants
from flashverify_kernels.signature import Source, source_of


def selected_source(
    kind: Kind,
    *,
    d: int,
    dv: int,
    dtype: torch.dtype,
    causal: bool = False,
    key_lengths: bool = True,
    dlse: bool = False,
    aligned: bool = True,
    precision: Precision = "ieee",
    packed: int = 64,
    keys: int = 64,
) -> Source:
    """What a launch would compile.

    Args:
        kind: which kernel.
        d: head dimension of q and k.
        dv: head dimension of v.
        dtype: of the inputs.
        causal: whether there is a causal mask.
        key_lengths: whether key lengths are given.
        dlse: whether a gradient arrives through the LSE.
        aligned: whether strides and pointers are aligned.
        precision: of the dot products of fp32 inputs.
        packed: rows of a list times heads of a group.
        keys: keys of a block.
    """
    fn = KERNELS[kind]
    config = selected_config(kind, d=d, dv=dv, dtype=dtype, packed=packed, keys=keys)
    walks = kind != "dkdv"
    constants = selected_constants(
        config,
        d=d,
        dv=dv,
        aligned=aligned,
        causal=causal,
        whole=(keys % config.block_n if walks else packed % config.block_m) == 0,
        precision=precision,
    )
    given = {
        "k_lengths_ptr": key_lengths,
        "dlse_ptr": dlse,
        "selected.lists": walks,
        "selected.counts": walks,
        "selected.namers": not walks,
        "selected.begins": not walks,
    }
    return source_of(fn, *split_constants(fn, constants), lambda path: given.get(path, True), dtype)
