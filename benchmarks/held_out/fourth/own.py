"""Held-out defects of kernels that are not the bundled ones, the fourth set; see `benchmarks/README.md`.

Paged decoding in the folder `own`, and the right forward in Triton and attention in plain torch of the third set. They are planted by
themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="f4_diagonal_in_the_last_step_alone",
        file="third/own/tiled.py",
        before="            see = see & (key[None, :] <= row[:, None] + shift)\n",
        after="            see = see & ((key[None, :] <= row[:, None] + shift) | (start + STEP < stop))\n",
        outputs=("o", "lse"),
        modelled_on="the causal mask is applied in the last step of the walk over the keys alone: rows see keys after them where the diagonal of a tile of rows crosses several steps (tiles of keys narrower than those of rows, or not aligned to the diagonal); one step is right",
        needs=("causal",),
    ),
    OwnDefect(
        name="f4_walk_begins_behind_the_left_edge",
        file="third/own/tiled.py",
        before="    for start in range(0, stop, STEP):\n",
        after="    begin = 0\n"
        "    if LEFT:\n"
        "        begin = (tl.maximum(tile * BLOCK + shift - left, 0) + STEP - 1) // STEP * STEP\n"
        "    for start in range(begin, stop, STEP):\n",
        outputs=("o", "lse"),
        modelled_on="with a window the walk over the keys begins at the first whole step behind the left edge of the tile's first row: rows lose the keys of their window before that; right where the edge falls on a step or before the first key",
        needs=("window",),
    ),
    OwnDefect(
        name="f4_cap_slope_behind_the_slopes",
        file="third/own/by_hand.py",
        before="            ds = ds / torch.cosh(dot / p.softcap) ** 2\n",
        after="            inner = dot\n"
        "            if p.slopes is not None:\n"
        "                n = torch.full((q.shape[0],), k.shape[2]) if p.key_lengths is None else p.key_lengths.long()\n"
        "                at = torch.arange(q.shape[2])[:, None] + shift_of(p, n[:, None, None])\n"
        "                inner = dot - p.slopes[None, :, None, None] * (at - torch.arange(k.shape[2])).abs()[:, None]\n"
        "            ds = ds / torch.cosh(inner / p.softcap) ** 2\n",
        outputs=("dq", "dk"),
        modelled_on="with a softcap and ALiBi the derivative of the cap is taken at the product minus the ALiBi term, which is added behind the cap; dV, and one of the two alone, are right",
        needs=("softcap", "alibi"),
    ),
    OwnDefect(
        name="f4_heads_of_v_in_turn_in_the_backward",
        file="third/own/by_hand.py",
        before="over_group(v.float(), group)\n        shown",
        after="v.float().repeat(1, group, 1, 1)\n        shown",
        outputs=("dq", "dk"),
        modelled_on="the backward takes V, and V only, of kv head h % Hkv for query head h, where h // group is meant: dQ and dK are wrong with groups and more than one kv head; dV and the forward are right",
        needs=("groups", "kv_heads"),
    ),
    OwnDefect(
        name="f4_page_of_a_key_by_its_part",
        file="fourth/own/pages.py",
        before="    page, slot = row[at // size].long(), at % size\n",
        after="    page, slot = row[first // size + (at - first) // size].long(), at % size\n",
        outputs=("o", "lse"),
        modelled_on="the page of a key is counted from the page in which its part of the keys begins, in steps of whole pages from the part's first key: where a part begins in the middle of a page, the keys from the next page on up to that place are read from the page before; right for the first part, for pages of one key, and where parts begin with a page",
        needs=("paged", "launch"),
    ),
    OwnDefect(
        name="f4_parts_weighed_by_their_maxima",
        file="fourth/own/pages.py",
        before="    shares = torch.exp(lse - torch.where(top == -torch.inf, 0.0, top))\n",
        after="    largest = m.amax(0)\n    shares = torch.exp(m - torch.where(largest == -torch.inf, 0.0, largest))\n",
        outputs=("o", "lse"),
        modelled_on="normalised parts are weighed by exp of their maxima, not of their LSE: O is wrong with several parts whose row sums differ; the LSE is the largest LSE plus the log of these weights' sum; one part is right",
        needs=("paged",),
    ),
)
