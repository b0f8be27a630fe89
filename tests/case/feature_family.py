"""Subjects that declare features, and the axes that their cases are to meet."""

import itertools

from flashverify.case import PRECISIONS, Supports

FAMILY = Supports(
    precisions=PRECISIONS,
    masks=("causal", "window", "key_lengths", "query_lengths", "packed", "tree", "blocks", "bitmap"),
    logits=("softcap", "alibi", "bias", "sink"),
    dropout=True,
    empty=True,
    scales=("positive", "zero", "negative"),
    dlse=True,
    launch=(("block_m", (16, 32)), ("block_n", (16, 32))),
)
DECODE = Supports(masks=("causal", "key_lengths", "tree"), backward=False, page_sizes=(16, 64), max_seq_q=16)


def parts(case):
    extra = {"dropout"} if case.dropout else set()
    return {*case.mask.parts(), *case.logits.names(), *extra}


def sides(case):
    full = max(case.seq_q, case.seq_k)
    for side in case.mask.window or ():
        if side is None:
            yield "open"
        elif side < 2:
            yield str(side)
        else:
            yield "full" if side == full else "edge" if side % 16 in (0, 1, 15) else "other"


def packings(case):
    if case.mask.packed is None:
        return
    packed, lengths = case.mask.packed, case.mask.packed.lengths()
    yield from ("first empty" for pair in lengths[:1] if 0 in pair)
    yield from ("last empty" for pair in lengths[-1:] if 0 in pair)
    yield from ("inner empty" for pair in lengths[1:-1] if 0 in pair)
    yield from ("keys alone" for rows, keys in lengths if keys > rows == 0)
    yield from ("rows alone" for rows, keys in lengths if rows > keys == 0)
    yield "many" if len(lengths) > 2 else "few"
    if packed.cu_q[-1] < case.seq_q:
        yield "rows behind"
    if packed.cu_k[-1] < case.seq_k:
        yield "keys behind"
    yield from (f"packed {part}" for part in ("causal", "window", "tree") if getattr(case.mask, part) is not None)


def window_open(case):
    left, right = case.mask.window or (0, 0)
    return ["left only"] * (right is None and left is not None) + ["right only"] * (left is None and right is not None)


AXES = {
    "parts": (parts, {*FAMILY.masks, *FAMILY.logits, "dropout"}, 60),
    "window": (sides, {"open", "0", "1", "full", "edge", "other"}, 40),
    "one side": (window_open, {"left only", "right only"}, 30),
    "packed": (
        packings,
        {
            *("first empty", "last empty", "inner empty", "keys alone", "rows alone", "many", "few"),
            *("rows behind", "keys behind"),
        },
        10,
    ),
    "bitmap": (lambda c: [c.mask.bitmap.live] if c.mask.bitmap else [], {16, 128, 240, 256}, 8),
    "bitmap of each head": (lambda c: [c.mask.bitmap.each] if c.mask.bitmap else [], {False, True}, 20),
    "blocks": (lambda c: [c.mask.blocks.live] if c.mask.blocks else [], {0, 16, 128, 240, 256}, 4),
    "sliding": (lambda c: [c.mask.blocks.sliding] if c.mask.blocks else [], {0, 1, 2, 3}, 4),
    "butterfly": (lambda c: [c.mask.blocks.butterfly] if c.mask.blocks else [], {False, True}, 10),
    "block rows": (lambda c: [min(c.mask.blocks.rows, 32)] if c.mask.blocks else [], {16, 32}, 10),
    "softcap": (lambda c: [c.logits.softcap], {None, 1.0, 30.0, 50.0}, 12),
    "bias": (lambda c: [c.logits.bias], {None, "full", "head", "shared"}, 15),
    "dropout": (lambda c: [c.dropout], {0.0, 0.1, 0.5, 0.9}, 15),
    "together": (
        lambda c: itertools.combinations(sorted(parts(c)), 2),
        {("bias", "key_lengths"), ("alibi", "causal"), ("causal", "packed")},
        6,
    ),
}
"""By axis the values of a case on it, those that are to be met, and how often each is met at least in 4000 draws."""
