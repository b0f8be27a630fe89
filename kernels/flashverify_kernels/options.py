from dataclasses import dataclass
from typing import Literal

import torch

from flashverify_kernels.bitmask import BitMask
from flashverify_kernels.blocks import BlockMask
from flashverify_kernels.config import Configs
from flashverify_kernels.dropout import Dropout
from flashverify_kernels.packed import Packed
from flashverify_kernels.tree import TreeMask

Causal = Literal["top-left", "bottom-right"]
Layout = Literal["bhsd", "bshd"]
Precision = Literal["ieee", "tf32", "tf32x3"]
Window = tuple[int | None, int | None]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Options:
    """What an attention computes and how; the fields are the keyword arguments of `attention`, and `packed` sequences."""

    scale: float | None = None
    causal: Causal | None = None
    window: Window | None = None
    query_lengths: torch.Tensor | None = None
    key_lengths: torch.Tensor | None = None
    tree: TreeMask | None = None
    bitmask: BitMask | None = None
    blocks: BlockMask | None = None
    packed: Packed | None = None
    softcap: float | None = None
    alibi_slopes: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    sink: torch.Tensor | None = None
    dropout: Dropout | None = None
    precision: Precision = "ieee"
    layout: Layout = "bhsd"
    config: Configs | None = None
    allow_interpreted_bf16: bool = False

    def tables(self) -> list[torch.Tensor]:
        """The tensors that describe the mask and the logits, which must not change between forward and backward."""
        found = [self.query_lengths, self.key_lengths, self.alibi_slopes, self.bias, self.sink]
        if self.tree is not None:
            found.append(self.tree.bits)
        if self.bitmask is not None:
            found.append(self.bitmask.words)
        if self.blocks is not None:
            found += [self.blocks.along_keys, self.blocks.along_queries]
        if self.packed is not None:
            found += [self.packed.cu_q, self.packed.cu_k]
        return [x for x in found if x is not None]
