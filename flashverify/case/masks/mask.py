"""The mask of a case: which key each query row sees; and the registry of its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from flashverify.case.masks.bitmap import BITMAP, Bitmap
from flashverify.case.masks.blocks import BLOCKS, Blocks
from flashverify.case.masks.causal import CAUSAL, Causal
from flashverify.case.masks.key_lengths import KEY_LENGTHS
from flashverify.case.masks.packed import PACKED, Packed
from flashverify.case.masks.prefix_lengths import PREFIX_LENGTHS
from flashverify.case.masks.query_lengths import QUERY_LENGTHS
from flashverify.case.masks.selection import SELECTION, Selection
from flashverify.case.masks.tree import TREE
from flashverify.case.masks.window import WINDOW
from flashverify.case.masks.window_alignment import WINDOW_ALIGNMENT
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.masks.part import MaskPart

__all__ = [
    "LENGTHS",
    "PARTS",
    "Bitmap",
    "Blocks",
    "Causal",
    "Mask",
    "Packed",
    "Selection",
    "drawn_anew",
    "of_sequences",
    "without_part",
]

PARTS: tuple[MaskPart, ...] = (
    CAUSAL,
    WINDOW,
    WINDOW_ALIGNMENT,
    KEY_LENGTHS,
    QUERY_LENGTHS,
    PACKED,
    TREE,
    BLOCKS,
    BITMAP,
    PREFIX_LENGTHS,
    SELECTION,
)
"""Every part, in the order of the words of a case's text and of random draws. A part's own file says what it means."""

LENGTHS = tuple(part.name for part in PARTS if part.role == "lengths")
"""Those that declare how many rows or keys of a dense problem belong to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """The AND of its parts; a part that is None masks nothing.

    Args:
        causal: row i sees key j only if j <= i (`top-left`), or j <= i + len_k - len_q (`bottom-right`), where the
            lengths are the sequence's declared ones.
        window: (left, right): row i, at its causal position p, sees keys p - left <= j <= p + right; None is unbounded.
            p is i + len_k - len_q under a bottom-right causal or window alignment, else i.
        window_alignment: `bottom-right` for a window without causal; None is top-left. A window with causal has its alignment.
        key_lengths: per sequence; keys from there on are padding.
        query_lengths: per sequence; rows from there on are padding: O = 0, LSE = -inf, no gradient.
        packed: several sequences in one row of tokens; a row sees its own sequence only, and causal and window are aligned
            within it. It takes the place of key and query lengths.
        tree: parents of the query nodes (-1 for a root, otherwise a smaller index). The last `seq_q` keys are the nodes
            themselves, the keys before them a prefix that every node sees; a node sees itself and its ancestors. Of packed
            sequences each has a tree of its own, numbered within it, and the last of its keys are its nodes. The entries of a
            dense batch share a tree, or have a tuple of trees, one for each.
        blocks: a bool per block.
        bitmap: a bool per pair.
        prefix_lengths: per sequence; where causal would hide a key before this one from a row of the sequence, the row sees it.
            Not with a window that is bounded on its right.
        selection: lists of blocks of keys, by index.
    """

    causal: Causal | None = None
    window: tuple[int | None, int | None] | None = None
    window_alignment: Literal["bottom-right"] | None = None
    key_lengths: tuple[int, ...] | None = None
    query_lengths: tuple[int, ...] | None = None
    packed: Packed | None = None
    tree: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None
    blocks: Blocks | None = None
    bitmap: Bitmap | None = None
    prefix_lengths: tuple[int, ...] | None = None
    selection: Selection | None = None

    def __post_init__(self) -> None:
        for part, value in self.given():
            part.check(value, self)
        present = self.parts()
        for part, value in self.given():
            for name in part.needs:
                if name not in present:
                    raise UsageError(f"{part.name}={value!r} is not accepted: only with {name}")
            for name in part.excludes:
                if name in present:
                    raise UsageError(f"{part.name}={value!r} is not accepted: not with {name}")

    def given(self) -> list[tuple[MaskPart, Any]]:
        """The parts that are present, each with its value."""
        return [(part, value) for part in PARTS if (value := getattr(self, part.name)) is not None]

    def parts(self) -> frozenset[str]:
        """Names of the parts that are present, as a subject declares them in `Supports.masks`."""
        return frozenset(part.name for part, _ in self.given() if part.role != "alignment")

    @property
    def aligned_at_end(self) -> bool:
        """Whether row i stands at position i + len_k - len_q for causal, window, ALiBi and a relative bias; else at i."""
        return "bottom-right" in (self.causal, self.window_alignment)


def without_part(mask: Mask, name: str) -> Mask:
    """The mask without a part and those that need it."""
    dropped = {name, *(part.name for part in PARTS if name in part.needs)}
    return replace(mask, **dict.fromkeys(dropped))


def drawn_anew(mask: Mask, seed: int) -> Mask:
    """The mask with its patterns drawn by another seed, neither all live nor all dead."""
    changed = {
        part.name: replace(value, live=value.live if 32 < value.live < 224 else 128, seed=seed)
        for part, value in mask.given()
        if part.seeded
    }
    return replace(mask, **changed)


def of_sequences(mask: Mask, chosen: list[int], packed: Packed | None) -> Mask:
    """The mask of some of its sequences.

    Args:
        mask: with these sequences and more.
        chosen: their numbers.
        packed: where they lie, with as many rows and keys as before or fewer; None for sequences that are not packed.

    Raises:
        UsageError: there is no such mask.
    """
    lengths = None if packed is None else packed.lengths()
    changed: dict[str, Any] = {"packed": packed}
    for part, value in mask.given():
        pieces = part.per_sequence(value, mask)
        if pieces is not None:
            kept = [pieces[s] for s in chosen]
            if lengths is not None:
                kept = [part.cut(piece, *size) for piece, size in zip(kept, lengths, strict=True)]
            changed[part.name] = part.join(kept, packed=packed is not None)
    return replace(mask, **changed)
