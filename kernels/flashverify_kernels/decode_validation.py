"""Every check of what callers of `decode` pass in, and the one place where its defaults are resolved."""

from dataclasses import dataclass
from typing import get_args

import torch

from flashverify_kernels.config import LaunchConfig, config_error
from flashverify_kernels.decode_config import MAX_SPLITS, decode_config, decode_splits, resident_programs
from flashverify_kernels.decode_parts import check_decode_mask, check_decode_terms
from flashverify_kernels.device.mask import LOWER
from flashverify_kernels.lengths import MAX_LENGTH
from flashverify_kernels.masking import Extent, Mask
from flashverify_kernels.options import Causal, DecodeOptions, Layout, Precision
from flashverify_kernels.runtime import INTERPRETED, device_error, readable, shared_memory_limit, supported
from flashverify_kernels.terms import Terms
from flashverify_kernels.validation import axes, check_like, check_scale

_MAX_PROGRAMS = 2**31 - 1


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CheckedDecode:
    """A checked call with every default resolved.

    Attributes:
        batch: sequences.
        heads: query heads.
        kv_heads: kv heads.
        sq: queries.
        sk: the most keys of a sequence.
        d: channels of q and k.
        dv: channels of v.
        page_size: keys per page, or 0 without pages.
        mask: parts of the mask.
        scale: of the logits.
        terms: what else is done to logits and weights.
        splits: parts that the keys are split into.
        precision: of the dot products.
        config: launch configuration.
    """

    batch: int
    heads: int
    kv_heads: int
    sq: int
    sk: int
    d: int
    dv: int
    page_size: int
    mask: Mask
    scale: float
    terms: Terms
    splits: int
    precision: Precision
    config: LaunchConfig

    @property
    def group(self) -> int:
        """Query heads per kv head."""
        return self.heads // max(self.kv_heads, 1)

    @property
    def programs(self) -> int:
        """Programs of one launch."""
        return self.splits * self.batch * self.kv_heads * -(-self.group * self.sq // self.config.block_m)


def check_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: DecodeOptions) -> CheckedDecode:
    """Check inputs and options against each other.

    Raises:
        TypeError: an argument of the wrong type, or dtypes that differ.
        ValueError: anything else, in words that name the argument, the value and what is accepted.
    """
    check_names_of(options)
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_input(name, x, q, options.allow_interpreted_bf16)
    perm = axes(options.layout)
    batch, heads, sq, d = (q.shape[a] for a in perm)
    page_size = 0
    if options.block_table is None:
        _, kv_heads, sk, dv = (v.shape[a] for a in perm)
        for name, x, dim in (("k", k, d), ("v", v, dv)):
            _check_shape(name, x, tuple((batch, kv_heads, sk, dim)[a] for a in perm), options.layout)
    else:
        pages, page_size, kv_heads, dv = v.shape
        for name, x, dim in (("k", k, d), ("v", v, dv)):
            _check_shape(name, x, (pages, page_size, kv_heads, dim), "pages")
        sk = check_table(options.block_table, q, batch, page_size)
    for name, dim in (("q", d), ("v", dv)):
        if not (8 <= dim <= 256 and dim % 8 == 0):
            raise ValueError(f"{name}: the head dimension must be a multiple of 8 from 8 to 256, got {dim}")
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(f"q: {heads} query heads are not a multiple of {kv_heads} kv heads")
    if sq + sk > MAX_LENGTH:
        raise ValueError(f"k: at most {MAX_LENGTH} queries and keys, got {sq} and {sk}")
    if batch * heads * sq > MAX_LENGTH:
        raise ValueError(f"q: at most {MAX_LENGTH} rows of all heads and sequences, got {batch * heads * sq}")
    extent = Extent(batch=batch, heads=heads, rows=sq, keys=sk, max_q=sq, max_k=sk, device=q.device)
    mask = check_decode_mask(options, extent)
    scale = check_scale(options.scale, d)
    terms = check_decode_terms(options, extent, q.dtype, scale)
    check_pages(options, mask, k, batch, sq, sk, page_size)
    rows = heads // max(kv_heads, 1) * sq
    config = _check_config(options.config, q, d, dv, rows, terms)
    programs = batch * kv_heads * -(-rows // config.block_m)
    splits = _check_splits(options.n_splits, q, sk, programs, config, d, dv, terms)
    if programs * splits > _MAX_PROGRAMS:
        raise ValueError(f"q: {programs * splits} programs are more than one launch can take ({_MAX_PROGRAMS})")
    return CheckedDecode(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        sq=sq,
        sk=sk,
        d=d,
        dv=dv,
        page_size=page_size,
        mask=mask,
        scale=scale,
        terms=terms,
        splits=splits,
        precision=options.precision if q.dtype == torch.float32 else "ieee",
        config=config,
    )


def check_names_of(options: DecodeOptions) -> None:
    """Check the options that are one of a few names."""
    names = {"layout": get_args(Layout), "precision": get_args(Precision), "causal": (None, *get_args(Causal))}
    for name, accepted in names.items():
        value = getattr(options, name)
        if value not in accepted:
            raise ValueError(f"{name}: expected one of {', '.join(map(repr, accepted))}, got {value!r}")


def check_input(
    name: str, x: torch.Tensor, q: torch.Tensor, allow_interpreted_bf16: bool, function: str = "decode"
) -> None:
    """Check one of the operands of `function`, which has no backward."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.dim() != 4:
        raise ValueError(f"{name}: expected 4 axes, got shape {tuple(x.shape)}")
    if x.dtype != q.dtype:
        raise TypeError(f"{name}: expected {q.dtype} (that of q), got {x.dtype}")
    if x.device != q.device:
        raise ValueError(f"{name}: expected device {q.device} (that of q), got {x.device}")
    if x.stride(3) != 1:
        raise ValueError(f"{name}: the last axis must have stride 1, got strides {x.stride()}")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: {function} has no backward; detach it, work under torch.no_grad(), or use attention")
    reason = device_error(x.device)
    if reason is not None:
        raise ValueError(f"{name}: {reason}")
    reason = supported(x.dtype)
    if reason is not None and not (x.dtype == torch.bfloat16 and allow_interpreted_bf16):
        raise TypeError(f"{name}: {reason}")


def _check_shape(name: str, x: torch.Tensor, expected: tuple[int, ...], what: str) -> None:
    if tuple(x.shape) != expected:
        raise ValueError(f"{name}: expected shape {expected} ({what}; from q and v), got {tuple(x.shape)}")


def check_table(table: torch.Tensor, q: torch.Tensor, batch: int, page_size: int) -> int:
    """Check the shape of the page table; returns the keys that a sequence has room for."""
    if not isinstance(table, torch.Tensor):
        raise TypeError(f"block_table: expected a tensor, got {type(table).__name__}")
    if table.dim() != 2:
        raise ValueError(f"block_table: expected 2 axes [B, pages of a sequence], got shape {tuple(table.shape)}")
    check_like("block_table", table, q, (batch, table.shape[1]), torch.int32)
    if table.shape[1] > 1 and table.stride(1) != 1:
        raise ValueError(f"block_table: the last axis must have stride 1, got strides {table.stride()}")
    if page_size < 1:
        raise ValueError(f"k: expected pages of one key or more, got shape with {page_size}")
    return table.shape[1] * page_size


def check_pages(
    options: DecodeOptions, mask: Mask, k: torch.Tensor, batch: int, sq: int, sk: int, page_size: int
) -> None:
    """Check the entries of the page table that keys need, where they can be read without waiting."""
    table, lengths = options.block_table, options.key_lengths
    if table is None or not readable(table):
        return
    for b in range(batch):
        n = sk if lengths is None else int(lengths[b])
        rows = sq if options.query_lengths is None else int(options.query_lengths[b])
        first = max((n - rows if mask.align_end else 0) - mask.left, 0) if LOWER.value & mask.flags else 0
        used = table[b, first // page_size : -(-n // page_size)]
        if used.numel() and (int(used.min()) < 0 or int(used.max()) >= k.shape[0]):
            raise ValueError(f"block_table: expected pages from 0 to {k.shape[0] - 1}, got {used.tolist()} for b = {b}")


def _check_config(
    config: LaunchConfig | None, q: torch.Tensor, d: int, dv: int, rows: int, terms: Terms
) -> LaunchConfig:
    limit, pairs = shared_memory_limit(q.device), terms.pairs
    if config is None:
        config = decode_config(d=d, dv=dv, dtype=q.dtype, rows=rows, pairs=pairs, limit=limit, interpreted=INTERPRETED)
    elif not isinstance(config, LaunchConfig):
        raise TypeError(f"config: expected a LaunchConfig, got {type(config).__name__}")
    reason = config_error("forward", config, d=d, dv=dv, dtype=q.dtype, pairs=pairs, limit=limit)
    if reason is not None:
        raise ValueError(f"config: {reason}")
    return config


def _check_splits(
    splits: int | None, q: torch.Tensor, sk: int, programs: int, config: LaunchConfig, d: int, dv: int, terms: Terms
) -> int:
    if splits is None:
        resident = resident_programs(config, q.device, d=d, dv=dv, dtype=q.dtype, pairs=terms.pairs)
        return decode_splits(keys=sk, programs=programs, resident=resident)
    return check_splits(splits)


def check_splits(splits: int) -> int:
    """Check a number of parts that was asked for; returns it.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is not within 1 to `MAX_SPLITS`.
    """
    if isinstance(splits, bool) or not isinstance(splits, int):
        raise TypeError(f"n_splits: expected a whole number, got {splits!r} ({type(splits).__name__})")
    if not 1 <= splits <= MAX_SPLITS:
        raise ValueError(f"n_splits: expected 1 to {MAX_SPLITS}, got {splits}")
    return splits
