"""Held-out defects of kernels that are not the bundled ones, the thirteenth set; see `benchmarks/README.md`.

A forward in Triton that walks the keys from the last step to the first, and two in plain torch: attention by functions of the numbers of a
pair, which autograd differentiates, and the verification of a drafted tree, in the folder `own`. They are planted by themselves: `plant` writes
the changed module, which `as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s13_walk_down_ends_before_its_first_step",
        file="thirteenth/own/descending.py",
        before="    count = tl.maximum(last - begin + 1, 0)\n",
        after="    count = tl.maximum(last - begin, 0)\n",
        outputs=("o", "lse"),
        modelled_on="a loop that counts down and leaves out its last number, as range(last, begin, -1) does: every tile of rows loses the first step of keys that it is to walk: the first keys of the sequence, or those at the left edge of a window; rows that see no key of that step are right",
    ),
    OwnDefect(
        name="s13_masking_steps_without_one_more",
        file="thirteenth/own/descending.py",
        before="    masking = tl.cdiv(BLOCK, STEP) + 1 if CAUSAL else 1  #",
        after="    masking = tl.cdiv(BLOCK, STEP) if CAUSAL else 1  #",
        outputs=("o", "lse"),
        modelled_on="FlashAttention-2's n_masking_steps, which has one step more where the diagonal does not begin with a step of keys: under a causal mask and without a window as many steps are masked as cover a tile of rows: where the diagonal of a tile of rows cuts one step more (a bottom-right mask with a difference of keys and rows that is no multiple of the step), rows see keys after them in that step; top-left masks, multiples of the step, and windows are right",
        needs=("causal",),
    ),
    OwnDefect(
        name="s13_window_in_chunks",
        file="thirteenth/own/mods.py",
        before="        mods.append(j >= at - left)\n",
        after="        mods.append(j // (left + 1) >= at // (left + 1))\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="Llama 4's chunked attention, where a sliding window is meant: a row whose window has a left side of w sees the keys from the last multiple of w + 1 up to its place, not the w before it: all rows but every (w + 1)-th lose keys; a left side that reaches before the first key for all rows, or is 0, a right side and all without a window are right",
        needs=("window",),
    ),
    OwnDefect(
        name="s13_empty_rows_mended_behind_the_softmax",
        file="thirteenth/own/mods.py",
        before="    weights = torch.where(empty, 0.0, torch.softmax(torch.where(empty, 0.0, score), -1))\n",
        after="    weights = torch.softmax(score, -1).nan_to_num(0.0)\n",
        outputs=("dq", "dk"),
        modelled_on="pytorch/pytorch#41508: the NaN of a softmax over no key that is replaced behind it: O and LSE are right, and the derivative of the softmax is still NaN: dQ of a row that sees no key is NaN, and so is dK of the keys of its sequence and kv head; kv heads all of whose rows see a key, and dV, are right",
    ),
    OwnDefect(
        name="s13_ancestors_of_four_steps",
        file="thirteenth/own/verification.py",
        before="    for _ in range(nodes.bit_length()):\n",
        after="    for _ in range(2):\n",
        outputs=("o", "lse"),
        modelled_on="a closure that is squared a fixed number of times, enough for the trees that it was written for: a node of a tree sees its ancestors up to four steps up and none beyond; trees of a depth of up to four, and the keys before the nodes, are right",
    ),
    OwnDefect(
        name="s13_distances_by_depth",
        file="thirteenth/own/verification.py",
        before="    return torch.arange(len(parents))\n",
        after="    depth = []\n"
        "    for parent in parents:\n"
        "        depth.append(depth[parent] + 1 if parent >= 0 else 0)\n"
        "    return torch.tensor(depth, dtype=torch.long)\n",
        outputs=("o", "lse"),
        modelled_on="Medusa's position ids, which count the depth of a node: ALiBi measures distances from the depth of a node in its tree, not from its row, and to the depth of the nodes that it sees; a tree that is one chain is right, and so is all without slopes",
        needs=("alibi",),
    ),
)
