"""The parts of a mask, checked against the problem and each other, and what the kernels are told about them."""

from dataclasses import dataclass

import torch

from flashverify_kernels.bitmap import WORD, Bitmap
from flashverify_kernels.blocks import BlockMask
from flashverify_kernels.device.mask import BITS, LOWER, PREFIX, SPARSE, UPPER
from flashverify_kernels.lengths import MAX_LENGTH, check_device, check_lengths, check_prefix_lengths
from flashverify_kernels.mask_kinds import MASKS
from flashverify_kernels.options import Options, Window
from flashverify_kernels.packed import Packed
from flashverify_kernels.packed_blocks import bits_of_blocks
from flashverify_kernels.runtime import readable
from flashverify_kernels.tree import TreeMask
from flashverify_kernels.tree_bitmap import bits_of_both


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Extent:
    """The sizes that masks are checked against.

    Attributes:
        batch: batches, all of one for packed sequences.
        heads: query heads.
        rows: queries of a batch.
        keys: keys of a batch.
        max_q: queries of the longest sequence; `rows` unless packed.
        max_k: keys of the longest sequence; `keys` unless packed.
        device: where the tensors lie.
    """

    batch: int
    heads: int
    rows: int
    keys: int
    max_q: int
    max_k: int
    device: torch.device


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Mask:
    """A checked mask as the kernels know it.

    Attributes:
        flags: its parts, see `device.mask`.
        left: keys of the band before the diagonal.
        right: keys of the band after the diagonal.
        align_end: whether the diagonal ends at the last key.
        prefix_lengths: `[sequences]` int32 keys that the upper edge of the band does not hide, or None.
        words: `[B or 1, Hq or 1, rows, words]` int32 bits, or None.
        tree: whether the bits start at the upper edge of the band.
        blocks: the pattern of live blocks, or None.
    """

    flags: int
    left: int = 0
    right: int = 0
    align_end: bool = False
    prefix_lengths: torch.Tensor | None = None
    words: torch.Tensor | None = None
    tree: bool = False
    blocks: BlockMask | None = None

    @property
    def block_size(self) -> tuple[int, int] | None:
        """Queries and keys per block, which tiles must divide."""
        return None if self.blocks is None else (self.blocks.rows, self.blocks.keys)


def check_mask(options: Options, extent: Extent) -> Mask:
    """Check the parts of the mask.

    Raises:
        TypeError: a part of the wrong type or dtype.
        ValueError: a shape, device or value that is not accepted, or parts that do not go together.
    """
    if options.packed is not None:
        for name in ("query_lengths", "key_lengths"):
            if getattr(options, name) is not None:
                raise ValueError(f"{name}: not accepted with packed sequences")
    check_lengths("query_lengths", options.query_lengths, extent.rows, extent.batch, extent.device)
    check_lengths("key_lengths", options.key_lengths, extent.keys, extent.batch, extent.device)
    blocks = _check_blocks(options.blocks, extent)
    left, right = _check_window(options.window, extent)
    sequences = extent.batch if options.packed is None else options.packed.sequences
    check_prefix_lengths(options, sequences, extent.keys, extent.device)
    words = _check_bitmap(options.bitmap, extent)
    if blocks is not None and options.packed is not None:
        bits = bits_of_blocks(blocks, options.packed, extent.rows, extent.max_k)
        blocks, words = None, bits if words is None else words & bits
    if options.tree is not None:
        _check_tree(options.tree, options.packed, extent)
    if options.tree is not None and (options.causal is not None or options.window is not None):
        words = _tree_words(options, extent, _all_keys(extent) if words is None else words)
    elif options.tree is not None:
        return Mask(
            flags=MASKS["tree"] | (SPARSE.value if blocks else 0),
            right=0 if options.packed else extent.keys - extent.rows,
            align_end=options.packed is not None,
            words=_tree_words(options, extent, words),
            tree=words is None,
            blocks=blocks,
        )
    flags = 0
    align_end = options.causal == "bottom-right"
    if options.causal is not None:
        right = 0
    if right is not None:
        flags |= UPPER.value
    if left is not None:
        flags |= LOWER.value
    if words is not None:
        flags |= BITS.value
    if blocks is not None:
        flags |= SPARSE.value
    if options.prefix_lengths is not None:
        flags |= PREFIX.value
    # sides beyond the far end of the sequence change nothing, and cut there they do not overflow
    far_left, far_right = (extent.max_k, extent.max_q) if align_end else (extent.max_q, extent.max_k)
    return Mask(
        flags=flags,
        left=min(left or 0, far_left),
        right=min(right or 0, far_right),
        align_end=align_end,
        prefix_lengths=options.prefix_lengths,
        words=words,
        blocks=blocks,
    )


def _check_window(window: Window | None, extent: Extent) -> Window:
    if window is None:
        return None, None
    if not isinstance(window, tuple) or len(window) != 2:
        raise TypeError(f"window: expected (left, right), got {window!r} ({type(window).__name__})")
    for side in window:
        if side is not None and (isinstance(side, bool) or not isinstance(side, int)):
            raise TypeError(f"window: expected whole numbers or None, got {window!r}")
        if side is not None and side < 0:
            raise ValueError(f"window: expected sides of 0 or more keys, got {window!r}")
    if extent.max_q + extent.max_k > MAX_LENGTH:
        raise ValueError(
            f"window: at most {MAX_LENGTH} queries and keys together, got {extent.max_q} and {extent.max_k}"
        )
    return window


def _all_keys(extent: Extent) -> torch.Tensor:
    """The words of a bitmap that hides nothing."""
    return torch.full((1, 1, extent.rows, -(-extent.max_k // WORD)), -1, dtype=torch.int32, device=extent.device)


def _tree_words(options: Options, extent: Extent, words: torch.Tensor | None) -> torch.Tensor:
    """The bits of the tree, and of the bitmap where there is one."""
    tree = options.tree
    assert tree is not None
    nodes = tree.bits[None, None] if options.packed else tree.words(extent.batch, extent.rows)
    return nodes if words is None else bits_of_both(words, nodes, extent.keys, options.packed)


def _check_tree(tree: TreeMask, packed: Packed | None, extent: Extent) -> None:
    if not isinstance(tree, TreeMask):
        raise TypeError(f"tree: expected a TreeMask, got {type(tree).__name__}")
    check_device("tree", tree.bits, extent.device)
    if packed is None:
        if tree.nodes not in (extent.rows, extent.batch * extent.rows):
            every = f" or {extent.batch * extent.rows} of all entries" if extent.batch > 1 else ""
            raise ValueError(f"tree: expected one node per query, {extent.rows}{every}, got {tree.nodes}")
        if extent.keys < extent.rows:
            raise ValueError(
                f"tree: expected the keys to be a prefix and the {extent.rows} nodes, got only {extent.keys} keys"
            )
    if tree.bits.shape[1] * WORD < extent.max_q:
        raise ValueError(f"tree: expected bits for {extent.max_q} nodes, got {tree.bits.shape[1]} words of {WORD}")
    if packed is not None and readable(packed.cu_q):
        if tree.nodes < int(packed.cu_q[-1]):
            raise ValueError(f"tree: expected one node per query, {int(packed.cu_q[-1])}, got {tree.nodes}")
        short = packed.cu_k.diff() < packed.cu_q.diff()
        if bool(short.any()):
            s = int(short.nonzero()[0])
            raise ValueError(
                f"tree: expected the keys of sequence {s} to be a prefix and its nodes, got fewer keys than queries"
            )


def _check_bitmap(bitmap: Bitmap | None, extent: Extent) -> torch.Tensor | None:
    if bitmap is None:
        return None
    if not isinstance(bitmap, Bitmap):
        raise TypeError(f"bitmap: expected a Bitmap, got {type(bitmap).__name__}")
    check_device("bitmap", bitmap.words, extent.device)
    expected = (extent.batch, extent.heads, extent.rows, -(-extent.max_k // WORD))
    _check_broadcast("bitmap", tuple(bitmap.words.shape), expected, f"{WORD} keys to a word")
    return bitmap.words


def _check_blocks(blocks: BlockMask | None, extent: Extent) -> BlockMask | None:
    if blocks is None:
        return None
    if not isinstance(blocks, BlockMask):
        raise TypeError(f"blocks: expected a BlockMask, got {type(blocks).__name__}")
    check_device("blocks", blocks.along_keys, extent.device)
    expected = (extent.batch, extent.heads, -(-extent.rows // blocks.rows), -(-extent.keys // blocks.keys))
    _check_broadcast("blocks", blocks.shape, expected, f"blocks of {blocks.rows} queries x {blocks.keys} keys")
    return blocks


def _check_broadcast(name: str, got: tuple[int, ...], expected: tuple[int, ...], what: str) -> None:
    batch, heads, *rest = expected
    if got[0] not in (1, batch) or got[1] not in (1, heads) or list(got[2:]) != rest:
        wanted = ", ".join([f"{batch} or 1", f"{heads} or 1", *map(str, rest)])
        raise ValueError(f"{name}: expected shape ({wanted}) ({what}), got {got}")
