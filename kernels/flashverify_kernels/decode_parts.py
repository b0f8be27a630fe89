"""The parts of the mask and the terms of a decoding, checked."""

import torch

from flashverify_kernels.bitmap import WORD, Bitmap
from flashverify_kernels.device.mask import LOWER
from flashverify_kernels.mask_kinds import MASKS
from flashverify_kernels.masking import Extent, Mask, check_mask
from flashverify_kernels.options import DecodeOptions, Options
from flashverify_kernels.terms import Terms, check_terms
from flashverify_kernels.tree import TreeMask


def check_decode_terms(options: DecodeOptions, extent: Extent, dtype: torch.dtype, scale: float) -> Terms:
    """Check softcap, ALiBi, bias and sink."""
    for name in ("bias", "sink"):
        x = getattr(options, name)
        if isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name}: decode has no backward; detach it, work under torch.no_grad(), or use attention")
    given = Options(
        causal=options.causal,
        softcap=options.softcap,
        alibi_slopes=options.alibi_slopes,
        bias=options.bias,
        sink=options.sink,
    )
    return check_terms(given, extent, dtype, scale)


def check_decode_mask(options: DecodeOptions, extent: Extent) -> Mask:
    """Check causal, window, tree and lengths."""
    batch, heads, sq = extent.batch, extent.heads, extent.rows
    rest = Options(
        causal=options.causal,
        window=options.window,
        query_lengths=options.query_lengths,
        key_lengths=options.key_lengths,
    )
    mask = check_mask(rest, extent)
    tree = options.tree
    if tree is None:
        return mask
    if options.query_lengths is not None:
        raise ValueError(
            f"tree: cannot be combined with query_lengths={options.query_lengths!r}: every query is a node"
        )
    if options.causal == "top-left" or (options.window is not None and options.causal is None):
        raise ValueError(
            f"tree: expected causal='bottom-right' or None, and with a window 'bottom-right', because the nodes are the last keys; "
            f"got causal={options.causal!r}, window={options.window!r}"
        )
    if isinstance(tree, TreeMask):  # a node sees none after it
        flags, words = MASKS["tree"], tree.words(batch, sq)
    elif isinstance(tree, Bitmap):
        flags, words = MASKS["bitmap" if options.causal is None else "tree"], tree.words
    else:
        raise TypeError(f"tree: expected a TreeMask or a Bitmap, got {type(tree).__name__}")
    accepted = ((1, batch), (1, heads), (sq,), (-(-sq // WORD),))
    if any(size not in sizes for size, sizes in zip(words.shape, accepted, strict=True)):
        raise ValueError(
            f"tree: expected the bits of {sq} nodes, [1 or {batch}, 1 or {heads}, {sq}, {-(-sq // WORD)}] words, got {tuple(words.shape)}"
        )
    if words.device != extent.device:
        raise ValueError(f"tree: expected device {extent.device} (that of q), got {words.device}")
    # no right side reaches behind causal, and what causal shows of the keys before the nodes is all of them
    return Mask(flags=flags | mask.flags & LOWER.value, left=mask.left, align_end=True, words=words, tree=True)
