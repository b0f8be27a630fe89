"""Attention over K and V in codes: split-KV decoding of a few queries, and the prefill of many."""

import contextlib
import math
from typing import Any

import torch

from flashverify_kernels.arguments import mask_parts
from flashverify_kernels.decode_config import decode_splits, resident_programs
from flashverify_kernels.decode_validation import check_names_of, check_splits
from flashverify_kernels.device.arguments import Sizes
from flashverify_kernels.device.quantised.attention import quantised_decode_kernel, quantised_forward_kernel
from flashverify_kernels.device.quantised.codes import RowScales
from flashverify_kernels.masking import Extent, Mask, check_mask
from flashverify_kernels.merge import aligned, launch_merge
from flashverify_kernels.options import Causal, DecodeOptions, Options, Precision, Window
from flashverify_kernels.quantised.cache import Quantised, QuantisedQueries
from flashverify_kernels.quantised.constants import MODES, prefill_config, quantised_constants, quantised_decode_config
from flashverify_kernels.runtime import INTERPRETED, device_error, shared_memory_limit, supported
from flashverify_kernels.validation import check_scale
from flashverify_kernels.views import part_view, view

_LOG2_E = math.log2(math.e)
_LN_2 = math.log(2)


def quantised_decode(
    q: torch.Tensor | QuantisedQueries, k: Quantised, v: Quantised, *, n_splits: int | None = None, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale * q k^T) v of few queries and many quantised keys, the keys in `n_splits` parts that are merged.

    Args:
        q: `[B, Hq, Sq, D]` fp16, bf16 or fp32, any strides with a last one of 1; or `QuantisedQueries`.
        k: keys.
        v: values, with as many keys.
        n_splits: from 1 to 1024; by default the fewest that fill the device.
        options: scale, causal, window, key_lengths and block_table as in `decode`; `mode`, `precision` and `allow_interpreted_bf16` as in
            `quantised_attention`.

    Returns:
        O, `[B, Hq, Sq, Dv]` in the dtype of q (of codes the one that they name), and the natural-log LSE, `[B, Hq, Sq]` fp32. A query that sees no key has O = 0 and
        LSE = -inf.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    call = _Call(q, k, v, **options)
    splits = call.splits() if n_splits is None else check_splits(n_splits)
    o, lse = call.outputs()
    if not o.numel():
        return o, lse
    parts, parts_lse = o[None], lse[None]
    if splits > 1:
        parts = torch.empty((splits, *o.shape), dtype=torch.float32, device=o.device)
        parts_lse = torch.empty((splits, *lse.shape), dtype=torch.float32, device=o.device)
    q = call.q
    tiles = -(-call.group * q.shape[2] // call.config.block_m)
    call.launch(
        quantised_decode_kernel,
        splits * q.shape[0] * call.kv_heads * tiles,
        parts,
        o_view=part_view(parts),
        lse_ptr=parts_lse,
        lse_scale=_LN_2 if splits == 1 else 1.0,
        batch=q.shape[0],
        splits=splits,
    )
    if splits > 1:
        launch_merge(parts, parts_lse, o, lse, base2=True, lse_scale=_LN_2)
    return o, lse


def quantised_attention(
    q: torch.Tensor | QuantisedQueries, k: Quantised, v: Quantised, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale * q k^T) v of many queries over quantised keys; no backward.

    Args:
        q: as in `quantised_decode`, with the values returned there.
        k: keys.
        v: values, with as many keys.
        options: scale, causal, window and key_lengths as in `attention`; no block_table;
            mode: how a code becomes a number. "operand": its product with the scale in fp32, rounded to the dtype of q. "folded" (the
            default): the code itself is the operand; the scale of K multiplies the logit, that of V the result where one serves a
            head, else the weight, all in fp32. "fp8": folded, with weights times 256 in e4m3 and V multiplied as fp8; of e4m3 codes with
            one scale a head alone;
            precision: of the products of an fp32 q; allow_interpreted_bf16: as in `attention`.

    Returns:
        O and the natural-log LSE.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    if k.paged or v.paged:
        raise ValueError("k.paged: only quantised_decode takes pages")
    call = _Call(q, k, v, prefill=True, **options)
    o, lse = call.outputs()
    if o.numel():
        q, tiles = call.q, -(-call.q.shape[2] // call.config.block_m)
        programs = q.shape[0] * q.shape[1] * tiles
        call.launch(quantised_forward_kernel, programs, o, o_view=view(o), lse_ptr=lse, lse_scale=_LN_2)
    return o, lse


class _Call:
    """A checked call with every default resolved."""

    def __init__(
        self,
        q: torch.Tensor | QuantisedQueries,
        k: Quantised,
        v: Quantised,
        *,
        scale: float | None = None,
        causal: Causal | None = None,
        window: Window | None = None,
        key_lengths: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
        mode: str = "folded",
        precision: Precision = "ieee",
        allow_interpreted_bf16: bool = False,
        prefill: bool = False,
    ) -> None:
        self.codes = q if isinstance(q, QuantisedQueries) else None
        self.q = q = q.codes if isinstance(q, QuantisedQueries) else q
        self.k, self.v, self.key_lengths, self.table = k, v, key_lengths, block_table
        self.dtype = q.dtype if self.codes is None else self.codes.dtype
        self.kv_heads, self.sk = k.kv_heads, self._room()
        check_names_of(DecodeOptions(causal=causal, precision=precision))
        self._check(mode, allow_interpreted_bf16)
        self.mode, self.scale = mode, check_scale(scale, q.shape[3])
        self.precision = precision if self.dtype == torch.float32 else "ieee"
        self.group = q.shape[1] // max(self.kv_heads, 1)
        batch, heads, sq, self.d = q.shape
        extent = Extent(batch=batch, heads=heads, rows=sq, keys=self.sk, max_q=sq, max_k=self.sk, device=q.device)
        self.mask: Mask = check_mask(Options(causal=causal, window=window, key_lengths=key_lengths), extent)
        tiles: dict[str, Any] = {"d": self.d, "dv": v.dim, "dtype": self.dtype, "interpreted": INTERPRETED}
        tiles |= {"limit": shared_memory_limit(q.device), "codes": k.format}
        rows = self.group * sq
        self.config = prefill_config(**tiles) if prefill else quantised_decode_config(rows=rows, **tiles)

    def _check(self, mode: str, allow_interpreted_bf16: bool) -> None:
        q, k, v = self.q, self.k, self.v
        if mode not in MODES:
            raise ValueError(f"mode: expected one of {', '.join(MODES)}, got {mode!r}")
        reason = supported(self.dtype)
        if reason is not None and not (self.dtype == torch.bfloat16 and allow_interpreted_bf16):
            raise TypeError(f"q: {reason}")
        reason = device_error(q.device)
        if reason is not None or q.dim() != 4 or (q.shape[3] > 1 and q.stride(3) != 1):
            raise ValueError(
                f"q: {reason or f'expected 4 axes, the last of stride 1, got {tuple(q.shape)} {q.stride()}'}"
            )
        if self.codes is not None:
            self.codes.check(k)
        k.check("k", q, self.sk)
        v.check("v", q, self.sk)
        if k.format != v.format or k.dim != q.shape[3] or k.codes.shape[:3] != v.codes.shape[:3]:
            raise ValueError(
                f"k: expected the format and heads of v and {q.shape[3]} channels, got {k.format}, {k.dim}"
            )
        unequal = q.shape[1] % k.kv_heads if k.kv_heads else q.shape[1]
        if unequal or (not k.paged and k.codes.shape[0] != q.shape[0]):
            raise ValueError(
                f"q: {q.shape[1]} query heads of {q.shape[0]} sequences do not fit k {tuple(k.codes.shape)}"
            )
        if mode == "fp8" and not (v.format == "e4m3" and v.one_a_head):
            raise ValueError("mode: 'fp8' needs codes in e4m3 and one scale a head or for all")

    def _room(self) -> int:
        """Keys that there is room for.

        Raises:
            ValueError: pages without what finds their keys, or the other way round.
        """
        table, k, v = self.table, self.k, self.v
        if (table is not None) != k.paged or k.paged != v.paged:
            raise ValueError("block_table: expected with codes in pages, and only with them")
        if table is None:
            return k.codes.shape[2]
        if table.dtype != torch.int32 or table.dim() != 2 or table.shape[0] != self.q.shape[0] or table.stride(1) != 1:
            raise ValueError(
                f"block_table: expected int32 of {self.q.shape[0]} contiguous rows, got {table.dtype} {tuple(table.shape)}"
            )
        if self.key_lengths is None:
            raise ValueError("key_lengths: expected with block_table, whose pages have room for more keys")
        return table.shape[1] * k.codes.shape[1]

    @property
    def scale_last(self) -> bool:
        """Whether the scale of V multiplies the result."""
        return self.mode != "operand" and self.v.one_a_head

    def splits(self) -> int:
        """The number of parts that fills the device."""
        dims: dict[str, Any] = {"d": self.d, "dv": self.v.dim, "dtype": self.dtype}
        resident = resident_programs(self.config, self.q.device, **dims)
        programs = self.q.shape[0] * self.kv_heads * -(-self.group * self.q.shape[2] // self.config.block_m)
        return decode_splits(keys=self.sk, programs=programs, resident=resident)

    def outputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """O and the LSE, not written yet."""
        shape = (*self.q.shape[:3], self.v.dim)
        o = torch.empty(shape, dtype=self.dtype, device=self.q.device)
        return o, torch.empty(shape[:3], dtype=torch.float32, device=self.q.device)

    def launch(self, kernel: Any, programs: int, written: torch.Tensor, **arguments: Any) -> None:
        """Launch a kernel with what both take."""
        q, d, dv = self.q, self.d, self.v.dim
        with torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext():
            kernel[(programs,)](
                q_view=view(q if self.codes is None else q.view(torch.uint8)),
                q_scale=RowScales(None, 0, 0, 0, 1) if self.codes is None else self.codes.argument(),
                k_codes=self.k.argument(self.table),
                v_codes=self.v.argument(self.table),
                scale_log2=self.scale * _LOG2_E,
                k_lengths_ptr=self.key_lengths,
                sizes=Sizes(
                    heads=q.shape[1],
                    kv_heads=self.kv_heads,
                    group=self.group,
                    sq=q.shape[2],
                    sk=self.sk,
                    d8=d // 8,
                    dv8=dv // 8,
                ),
                mask=mask_parts(self.mask, "forward"),
                **quantised_constants(
                    self.config,
                    d=d,
                    dv=dv,
                    aligned=aligned(q, written),
                    mask=self.mask.flags,
                    codes=self.k.format,
                    mode=self.mode,
                    one_k=self.mode != "operand" and self.k.one_a_head,
                    scale_last=self.scale_last,
                    words=self.k.in_words and self.v.in_words,
                    dtype=None if self.codes is None else self.dtype,
                    precision=self.precision,
                ),
                **arguments,
            )
