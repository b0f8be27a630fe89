"""Q, K or V in codes, as callers give them."""

from dataclasses import dataclass

import torch

from flashverify_kernels.device.arguments import PageTable
from flashverify_kernels.device.quantised.codes import E4M3, E5M2, INT4, INT8, Codes, RowScales, Scales, ZeroPoints

FORMATS = {"e4m3": E4M3, "e5m2": E5M2, "int8": INT8, "int4": INT4}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Quantised:
    """K or V in codes: the value of a key is `scale * (code - zero)`.

    Args:
        codes: `[B, Hkv, Sk, D]` of 8 bits (uint8 or the format's own dtype); of `int4` `[B, Hkv, Sk, D / 2]` uint8, channel 2c in the low
            half of byte c. Any strides with a last one of 1.
        scale: fp32 `[1, 1, 1]` for one of the tensor, or `[B, Hkv, ceil(Sk / keys_per_scale)]`.
        format: `e4m3`, `e5m2`, `int8` or `int4`.
        keys_per_scale: neighbouring keys of a head that share a scale.
        paged: codes lie in pages, `[P, page_size, Hkv, D]`. Then scales are `[1, 1, 1]` or `[B, Hkv, 1]`, or lie in the pages too.
        scales_in_pages: scales are `[P, page_size / keys_per_scale, Hkv]`, each of keys of one page.
        zero: int32 of the shape of `scale`, integers only; None for 8 of `int4` and 0 of the others.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    format: str
    keys_per_scale: int
    zero: torch.Tensor | None = None
    paged: bool = False
    scales_in_pages: bool = False

    @property
    def dim(self) -> int:
        """Channels."""
        return self.codes.shape[3] * (2 if self.format == "int4" else 1)

    @property
    def one_a_head(self) -> bool:
        """Whether one scale serves all keys of a head."""
        return not self.scales_in_pages and self.scale.shape[2] == 1

    @property
    def in_words(self) -> bool:
        """Whether every row of codes starts on 16 bytes."""
        return self.codes.data_ptr() % 16 == 0 and all(step % 16 == 0 for step in _steps(self.codes))

    @property
    def page_size(self) -> int | None:
        """Keys of a page; None without pages."""
        return self.codes.shape[1] if self.paged else None

    @property
    def kv_heads(self) -> int:
        """Heads."""
        return self.codes.shape[2 if self.paged else 1]

    def check(self, name: str, q: torch.Tensor, keys: int) -> None:
        """Refuse what the kernels do not take.

        Raises:
            TypeError: a tensor of the wrong dtype.
            ValueError: anything else; the message names the argument, the value and what is accepted.
        """
        if self.format not in FORMATS:
            raise ValueError(f"{name}.format: expected one of {', '.join(FORMATS)}, got {self.format!r}")
        if self.codes.dim() != 4 or self.codes.element_size() != 1:
            raise TypeError(
                f"{name}.codes: expected 4 axes of 8 bits, got {tuple(self.codes.shape)} {self.codes.dtype}"
            )
        if self.codes.shape[3] > 1 and self.codes.stride(3) != 1:
            raise ValueError(f"{name}.codes: the last axis must have stride 1, got strides {self.codes.stride()}")
        if not (8 <= self.dim <= 256 and self.dim % 8 == 0):
            raise ValueError(f"{name}: the head dimension must be a multiple of 8 from 8 to 256, got {self.dim}")
        if self.keys_per_scale < 1:
            raise ValueError(f"{name}.keys_per_scale: expected 1 or more, got {self.keys_per_scale}")
        if not self.paged and self.codes.shape[2] != keys:
            raise ValueError(f"{name}.codes: expected {keys} keys (those of k), got {self.codes.shape[2]}")
        accepted = ((1, 1, 1), self._scale_shape(name, q.shape[0], keys))
        for what, x, dtype in (("scale", self.scale, torch.float32), ("zero", self.zero, torch.int32)):
            if x is None:
                continue
            if x.dtype != dtype:
                raise TypeError(f"{name}.{what}: expected {dtype}, got {x.dtype}")
            if tuple(x.shape) not in accepted or x.shape != self.scale.shape:
                raise ValueError(f"{name}.{what}: expected shape {accepted[0]} or {accepted[1]}, got {tuple(x.shape)}")
        if self.zero is not None and self.format in ("e4m3", "e5m2"):
            raise ValueError(f"{name}.zero: expected None with format {self.format!r}")
        if any(x.device != q.device for x in (self.codes, self.scale, *(() if self.zero is None else (self.zero,)))):
            raise ValueError(f"{name}: expected device {q.device} (that of q)")

    def _scale_shape(self, name: str, batch: int, keys: int) -> tuple[int, int, int]:
        """That of scales which are not one of the tensor."""
        if self.scales_in_pages:
            if not self.paged or self.codes.shape[1] % self.keys_per_scale:
                raise ValueError(
                    f"{name}.keys_per_scale: expected a divisor of the keys of a page with scales in pages, got {self.keys_per_scale}"
                )
            return (self.codes.shape[0], self.codes.shape[1] // self.keys_per_scale, self.codes.shape[2])
        groups = 1 if self.paged else max(-(-keys // self.keys_per_scale), 1)
        return (batch, self.kv_heads, groups)

    def argument(self, table: torch.Tensor | None) -> Codes:
        """As the kernels take it.

        Args:
            table: `[B, pages of a sequence]` int32, or None.
        """
        first, head, row = _steps(self.codes.transpose(1, 2) if self.paged else self.codes)
        return Codes(
            ptr=self.codes.view(torch.uint8),
            batch=0 if self.paged else first,
            page=first if self.paged else 0,
            head=head,
            row=row,
            scale=Scales(self.scale, *self._group_steps(self.scale)),
            zero=ZeroPoints(self.zero, *self._group_steps(self.zero)),
            keys_per_scale=self.keys_per_scale,
            pages=PageTable(table, 0 if table is None else table.stride(0), self.page_size or 0),
        )

    def _group_steps(self, x: torch.Tensor | None) -> tuple[int, int, int, int]:
        """Strides of sequences, pages, heads and groups of keys."""
        if x is not None and self.scales_in_pages:
            page, head, step = _steps(x.transpose(1, 2))
            return 0, page, head, step
        batch, head, step = _steps(x)
        return batch, 0, head, step


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class QuantisedQueries:
    """Q in codes of the format of K: the value of a row is `scale * code`.

    Args:
        codes: `[B, Hq, Sq, D]` of 8 bits, any strides with a last one of 1; not of `int4`.
        scale: fp32 `[1, 1, 1]` for one of the tensor, or `[B, Hq, ceil(Sq / rows_per_scale)]`.
        rows_per_scale: neighbouring rows of a head that share a scale.
        dtype: of the operands and of O: fp16, bf16 or fp32.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    rows_per_scale: int
    dtype: torch.dtype

    def check(self, k: Quantised) -> None:
        """Refuse what the kernels do not take.

        Raises:
            TypeError: a tensor of the wrong dtype.
            ValueError: anything else.
        """
        if k.format == "int4":
            raise ValueError("q: expected values with k in 'int4', got codes")
        if self.codes.dim() != 4 or self.codes.element_size() != 1:
            raise TypeError(f"q.codes: expected 4 axes of 8 bits, got {tuple(self.codes.shape)} {self.codes.dtype}")
        if self.scale.dtype != torch.float32 or self.scale.device != self.codes.device:
            raise TypeError(
                f"q.scale: expected fp32 on {self.codes.device}, got {self.scale.dtype} {self.scale.device}"
            )
        if self.rows_per_scale < 1:
            raise ValueError(f"q.rows_per_scale: expected 1 or more, got {self.rows_per_scale}")
        groups = max(-(-self.codes.shape[2] // self.rows_per_scale), 1)
        accepted = ((1, 1, 1), (*self.codes.shape[:2], groups))
        if tuple(self.scale.shape) not in accepted:
            raise ValueError(f"q.scale: expected shape {accepted[0]} or {accepted[1]}, got {tuple(self.scale.shape)}")

    def argument(self) -> RowScales:
        """As the kernels take it."""
        return RowScales(self.scale, *_steps(self.scale), self.rows_per_scale)


def _steps(x: torch.Tensor | None) -> tuple[int, int, int]:
    """Strides of the first three axes; 0 along those of size 1."""
    if x is None:
        return (0, 0, 0)
    batch, head, step = (0 if n == 1 else stride for n, stride in zip(x.shape[:3], x.stride()[:3], strict=True))
    return batch, head, step
