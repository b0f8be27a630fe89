"""The kinds of masks by name, and the flags that the kernels know."""

from flashverify_kernels.device.mask import BITS, LOWER, PREFIX, SPARSE, UPPER

MASKS = {
    "none": 0,
    "causal": UPPER.value,
    "left": LOWER.value,
    "window": LOWER.value | UPPER.value,
    "tree": BITS.value | UPPER.value,
    "bitmap": BITS.value,
    "blocks": SPARSE.value,
    "prefix": PREFIX.value | UPPER.value,
}
"""Flags of the kinds of mask; a right side of a window alone is compiled like a causal mask."""


def mask_flags(mask: str | int) -> int:
    """The flags of a mask: of its kinds joined by "+", such as "causal+bitmap", or the flags themselves."""
    if isinstance(mask, int):
        return mask
    flags = 0
    for kind in mask.split("+"):
        if kind not in MASKS:
            raise ValueError(f"mask: expected kinds out of {', '.join(MASKS)}, joined by '+', got {mask!r}")
        flags |= MASKS[kind]
    return flags
