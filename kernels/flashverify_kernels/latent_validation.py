"""Every check of what callers of `latent_attention` pass in, and the one place where its defaults are resolved."""

import math

import torch

from flashverify_kernels.decode_config import PROCESSORS, decode_splits
from flashverify_kernels.decode_validation import (
    CheckedDecode,
    check_input,
    check_names_of,
    check_pages,
    check_splits,
    check_table,
)
from flashverify_kernels.latent_config import latent_config
from flashverify_kernels.lengths import MAX_LENGTH
from flashverify_kernels.masking import Extent, check_mask
from flashverify_kernels.options import DecodeOptions, Options
from flashverify_kernels.runtime import INTERPRETED, compute_capability
from flashverify_kernels.terms import Terms
from flashverify_kernels.validation import axes, check_scale

_MAX_LATENT, _MAX_ROPE = 512, 256
_MAX_PROGRAMS = 2**31 - 1


def check_latent(q: torch.Tensor, kv: torch.Tensor, dim_v: int, options: DecodeOptions) -> CheckedDecode:
    """Check inputs and options against each other.

    Raises:
        TypeError: an argument of the wrong type, or dtypes that differ.
        ValueError: anything else; the message names the argument, the value and what is accepted.
    """
    check_names_of(options)
    for name, x in (("q", q), ("kv", kv)):
        check_input(name, x, q, options.allow_interpreted_bf16, "latent_attention")
    perm = axes(options.layout)
    batch, heads, sq, d = (q.shape[a] for a in perm)
    page_size = 0
    if options.block_table is None:
        kv_batch, kv_heads, sk, dim = (kv.shape[a] for a in perm)
        if kv_batch != batch:
            raise ValueError(f"kv: expected the {batch} sequences of q, got shape {tuple(kv.shape)}")
    else:
        _, page_size, kv_heads, dim = kv.shape
        sk = check_table(options.block_table, q, batch, page_size)
    if dim != d:
        raise ValueError(f"kv: expected the {d} channels of q, got shape {tuple(kv.shape)}")
    _check_dims(d, dim_v)
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(f"q: {heads} query heads are not a multiple of {kv_heads} kv heads")
    if sq + sk > MAX_LENGTH or batch * heads * sq > MAX_LENGTH:
        raise ValueError(f"q: at most {MAX_LENGTH} queries and keys, and rows of all heads, got shape {tuple(q.shape)}")
    extent = Extent(batch=batch, heads=heads, rows=sq, keys=sk, max_q=sq, max_k=sk, device=q.device)
    seen = Options(causal=options.causal, window=options.window, key_lengths=options.key_lengths)
    mask = check_mask(seen, extent)
    check_pages(options, mask, kv, batch, sq, sk, page_size)
    rows = heads // max(kv_heads, 1) * sq
    config = latent_config(
        dv=dim_v,
        rope=d - dim_v,
        dtype=q.dtype,
        rows=rows,
        capability=compute_capability(q),
        interpreted=INTERPRETED,
    )
    programs = batch * kv_heads * math.ceil(rows / config.block_m)
    splits = latent_splits(options.n_splits, q.device, sk, programs)
    if programs * splits > _MAX_PROGRAMS:
        raise ValueError(f"q: {programs * splits} programs are more than one launch can take ({_MAX_PROGRAMS})")
    return CheckedDecode(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        sq=sq,
        sk=sk,
        d=d,
        dv=dim_v,
        page_size=page_size,
        mask=mask,
        scale=check_scale(options.scale, d),
        terms=Terms(),
        splits=splits,
        precision=options.precision if q.dtype == torch.float32 else "ieee",
        config=config,
    )


def _check_dims(d: int, dim_v: int) -> None:
    if isinstance(dim_v, bool) or not isinstance(dim_v, int):
        raise TypeError(f"dim_v: expected a whole number, got {dim_v!r} ({type(dim_v).__name__})")
    if not (8 <= dim_v <= _MAX_LATENT and dim_v % 8 == 0):
        raise ValueError(f"dim_v: expected a multiple of 8 from 8 to {_MAX_LATENT}, got {dim_v}")
    if not (0 <= d - dim_v <= _MAX_ROPE and d % 8 == 0):
        raise ValueError(f"q: expected a multiple of 8 from dim_v={dim_v} to {dim_v + _MAX_ROPE} channels, got {d}")


def latent_splits(splits: int | None, device: torch.device, sk: int, programs: int) -> int:
    """The number of parts that the keys are split into: the given one, or the fewest that fill the device with a program each.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is not within 1 to `MAX_SPLITS`.
    """
    if splits is not None:
        return check_splits(splits)
    processors = PROCESSORS
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    return decode_splits(keys=sk, programs=programs, resident=processors)
