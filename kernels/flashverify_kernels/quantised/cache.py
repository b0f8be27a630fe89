"""K or V in codes, as callers give it."""

from dataclasses import dataclass

import torch

from flashverify_kernels.device.quantised.codes import E4M3, E5M2, INT4, INT8, Codes, Scales, ZeroPoints

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
        zero: int32 of the shape of `scale`, integers only; None for 8 of `int4` and 0 of the others.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    format: str
    keys_per_scale: int
    zero: torch.Tensor | None = None

    @property
    def dim(self) -> int:
        """Channels."""
        return self.codes.shape[3] * (2 if self.format == "int4" else 1)

    @property
    def one_a_head(self) -> bool:
        """Whether one scale serves all keys of a head."""
        return self.scale.shape[2] == 1

    def check(self, name: str, q: torch.Tensor, keys: int | None = None) -> None:
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
        batch, heads, sk = self.codes.shape[:3]
        if keys is not None and sk != keys:
            raise ValueError(f"{name}.codes: expected {keys} keys (those of k), got {sk}")
        groups = max(-(-sk // self.keys_per_scale), 1)
        accepted = ((1, 1, 1), (batch, heads, groups))
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

    def argument(self) -> Codes:
        """As the kernels take it."""
        batch, head, row = _steps(self.codes)
        return Codes(
            ptr=self.codes.view(torch.uint8),
            batch=batch,
            head=head,
            row=row,
            scale=Scales(self.scale, *_steps(self.scale)),
            zero=ZeroPoints(self.zero, *_steps(self.zero)),
            keys_per_scale=self.keys_per_scale,
        )


def _steps(x: torch.Tensor | None) -> tuple[int, int, int]:
    """Strides of the first three axes; 0 along those of size 1."""
    if x is None:
        return (0, 0, 0)
    batch, head, step = (0 if n == 1 else stride for n, stride in zip(x.shape[:3], x.stride()[:3], strict=True))
    return batch, head, step
