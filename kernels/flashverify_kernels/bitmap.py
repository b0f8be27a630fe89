from dataclasses import dataclass

import torch

WORD = 32
"""Keys per word."""


@dataclass(frozen=True, eq=False)
class Bitmap:
    """A mask of one bit per query and key, 32 keys to a word.

    Attributes:
        words: `[B or 1, Hq or 1, Sq, ceil(Sk / 32)]` int32: bit `j % 32` of word `[b, h, i, j // 32]` says that query i
            sees key j. Strides are free but for the last one, which is 1; an axis of size 1, or expanded, is shared.
            Packed sequences: `[1, Hq or 1, rows of q, ceil(max_k / 32)]`, keys numbered within the row's own sequence.
    """

    words: torch.Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.words, torch.Tensor):
            raise TypeError(f"words: expected a tensor, got {type(self.words).__name__}")
        if self.words.dtype != torch.int32 or self.words.dim() != 4:
            raise ValueError(
                f"words: expected an int32 tensor [B or 1, Hq or 1, Sq, ceil(Sk / 32)], got {self.words.dtype} {tuple(self.words.shape)}"
            )
        if self.words.shape[3] > 1 and self.words.stride(3) != 1:
            raise ValueError(f"words: the last axis must have stride 1, got strides {self.words.stride()}")

    @classmethod
    def from_bool(cls, see: torch.Tensor) -> "Bitmap":
        """Pack a mask.

        Args:
            see: `[B or 1, Hq or 1, Sq, Sk]` bool, true where the query sees the key; what is shared by expanding is
                packed once.

        Returns:
            The mask, on the device of `see`.

        Raises:
            TypeError: `see` is no bool tensor.
            ValueError: it has not 4 axes.
        """
        if not isinstance(see, torch.Tensor) or see.dtype != torch.bool:
            raise TypeError(f"see: expected a bool tensor, got {getattr(see, 'dtype', type(see).__name__)}")
        if see.dim() != 4:
            raise ValueError(f"see: expected 4 axes [B or 1, Hq or 1, Sq, Sk], got shape {tuple(see.shape)}")
        for axis in (0, 1):
            if see.shape[axis] > 1 and see.stride(axis) == 0:
                see = see.narrow(axis, 0, 1)
        return cls(pack(see))


def pack(see: torch.Tensor) -> torch.Tensor:
    """Pack the last axis of a bool tensor into `ceil(n / 32)` int32 words, the first key in the lowest bit."""
    n = see.shape[-1]
    width = -(-n // WORD)
    words = torch.zeros(*see.shape[:-1], width, dtype=torch.int32, device=see.device)
    if not words.numel():
        return words
    octets = torch.nn.functional.pad(see, (0, width * WORD - n)).reshape(*see.shape[:-1], 4 * width, 8)
    bits = 1 << torch.arange(8, dtype=torch.uint8, device=see.device)
    return words.copy_((octets * bits).sum(-1, dtype=torch.uint8).view(torch.int32))  # the lowest byte comes first
