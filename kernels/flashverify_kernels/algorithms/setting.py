"""What the host functions of the algorithms share: the setting of a run, what a forward leaves behind, and launching."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from flashverify_kernels.dropout import Dropout

_LOG2_E = math.log2(math.e)
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlocks:
    """A block-sparse pattern.

    Attributes:
        live: `[B or 1, H or 1, ceil(Sq / rows), ceil(Sk / keys)]` bool; of a false block nothing is computed.
        rows: queries per block.
        keys: keys per block.
    """

    live: torch.Tensor
    rows: int
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is computed, and in which tiles.

    Attributes:
        scale: of the logits.
        causal: alignment of a causal mask, or None.
        key_lengths: `[B]` int32, or None.
        blocks: a pattern whose blocks are multiples of the tiles; only the paper's own algorithms have one. None is dense.
        cu: `[n + 1]` int32 cumulative queries and keys of packed sequences in a batch of one; only the paper's own algorithms have them.
        dropout: which weights are dropped; only the paper's own algorithms drop any.
        block_m: queries per tile.
        block_n: keys per tile.

    Raises:
        ValueError: a tile does not divide the block of the pattern.
    """

    scale: float
    causal: Literal["top-left", "bottom-right"] | None = None
    key_lengths: torch.Tensor | None = None
    blocks: LiveBlocks | None = None
    cu: tuple[torch.Tensor, torch.Tensor] | None = None
    dropout: Dropout | None = None
    block_m: int = 32
    block_n: int = 32

    def __post_init__(self) -> None:
        if self.blocks is not None and (self.blocks.rows % self.block_m or self.blocks.keys % self.block_n):
            raise ValueError(
                f"block_m={self.block_m}, block_n={self.block_n} must divide blocks of {self.blocks.rows} x {self.blocks.keys}"
            )


class Forward(NamedTuple):
    """What a forward leaves behind.

    Attributes:
        o: `[B, H, Sq, Dv]` in the dtype of q.
        lse: `[B, H, Sq]` fp32, natural; -inf for a row without keys.
        kept: what the backward reads: (m, l) in base 2, or P.
    """

    o: torch.Tensor
    lse: torch.Tensor
    kept: tuple[torch.Tensor, ...] = ()


class Shapes:
    """Sizes of a problem and the arguments that all kernels share."""

    def __init__(self, q: torch.Tensor, v: torch.Tensor, setting: Setting) -> None:
        self.batch, self.heads, self.sq, self.d = q.shape
        _, self.kv_heads, self.sk, self.dv = v.shape
        self.group = self.heads // max(self.kv_heads, 1)
        self.blocks = {"BLOCK_M": setting.block_m, "BLOCK_N": setting.block_n}
        self.tiles_m, self.tiles_n = -(-self.sq // setting.block_m), -(-self.sk // setting.block_n)
        sequences = self.batch if setting.cu is None else setting.cu[0].shape[0] - 1
        self.matrices, self.kv_matrices = sequences * self.heads, sequences * self.kv_heads
        self.whole_rows = {"BLOCK_M": setting.block_m, "BLOCK_S": 1 << max(self.sk - 1, 0).bit_length()}
        self.common: dict[str, Any] = {
            "lengths_ptr": setting.key_lengths,
            "scale_log2": setting.scale * _LOG2_E,
            "heads": self.heads,
            "group": self.group,
            "sq": self.sq,
            "sk": self.sk,
            "d": self.d,
            "align_end": int(setting.causal == "bottom-right"),
            "BLOCK_D": padded(self.d),
            "CAUSAL": setting.causal is not None,
            **self.blocks,
        }
        self.mask = {name: self.common[name] for name in ("lengths_ptr", "heads", "align_end", "CAUSAL")}
        self.values = {"dv": self.dv, "BLOCK_DV": padded(self.dv)}
        self.pattern = self._pattern(setting.blocks)
        self.draws = _draws(setting.dropout)
        self.sequences = dict(zip(("cu_q_ptr", "cu_k_ptr"), setting.cu or (None, None), strict=True))

    def _pattern(self, blocks: LiveBlocks | None) -> dict[str, Any]:
        if blocks is None:
            return {"live_ptr": None, "block_rows": 1, "block_keys": 1}
        live = blocks.live.to(torch.uint8)
        table = live.expand(self.batch, self.heads, *live.shape[2:])
        return {"live_ptr": table, "block_rows": blocks.rows, "block_keys": blocks.keys}

    def rows(self, value: float, like: torch.Tensor) -> torch.Tensor:
        """A statistic of the rows."""
        return torch.full((self.batch, self.heads, self.sq), value, dtype=torch.float32, device=like.device)

    def square(self, like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A matrix of queries by keys."""
        return torch.empty(self.batch, self.heads, self.sq, self.sk, dtype=dtype, device=like.device)

    def of_query_heads(self, like: torch.Tensor) -> torch.Tensor:
        """A gradient of k or v for each query head, `[B, H, Sk, D]`: in fp32 where heads share them."""
        dtype = like.dtype if self.group == 1 else torch.float32
        return torch.empty(self.batch, self.heads, *like.shape[2:], dtype=dtype, device=like.device)

    def of_groups(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Its sum over the heads of a group, one after the other whatever the shape, `[B, Hkv, Sk, D]`."""
        if self.group == 1:
            return x
        first, *others = x.view(self.batch, self.kv_heads, self.group, *x.shape[2:]).unbind(2)
        return sum(others, first).to(dtype)


def _draws(drop: Dropout | None) -> dict[str, Any]:
    if drop is None or not drop.p:
        return {"keep_scale": None, "seed": 0, "offset": 0, "threshold": 0}
    return {
        "keep_scale": 1 / (1 - drop.p),
        "seed": drop.seed,
        "offset": drop.offset,
        "threshold": drop.threshold,
    }


def keeps_all(setting: Setting) -> None:
    """Refuse dropout and packed sequences.

    Raises:
        ValueError: weights are to be dropped, or sequences are packed.
    """
    if setting.cu is not None:
        raise ValueError(f"cu: only Algorithms 2 and 4 take packed sequences, got {setting.cu!r}")
    if setting.dropout is not None:
        raise ValueError(f"dropout: only Algorithms 2, 4 and 5 drop weights, got {setting.dropout!r}")


def padded(width: int) -> int:
    """A width as tiles have it: a power of two, for a dot at least 16."""
    return max(16, 1 << max(width - 1, 0).bit_length())


def launch(kernel: Any, programs: int, **arguments: Any) -> None:
    """Run the kernel, tensors made contiguous, where there is anything to do."""
    if programs:
        kernel[(programs,)](**{name: _whole(x) for name, x in arguments.items()})


def natural_lse(m: torch.Tensor, row_sum: torch.Tensor) -> torch.Tensor:
    """LSE from the maximum, base 2, and the row sum; -inf for a row without keys."""
    return (m + torch.where(row_sum == 0, 1, row_sum).log2()) * math.log(2)


def _whole(x: Any) -> Any:
    return x.contiguous() if isinstance(x, torch.Tensor) else x
