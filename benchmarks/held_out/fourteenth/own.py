"""Held-out defects of kernels that are not the bundled ones, the fourteenth set; see `benchmarks/README.md`.

A forward in Triton by pointers to blocks, and two in plain torch: a scan over chunks of keys with a backward by hand, and heads that are dealt
out to ranks, which autograd differentiates, in the folder `own`. They are planted by themselves: `plant` writes the changed module, which
`as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s14_values_from_the_first_key_under_a_window",
        file="fourteenth/own/block_pointers.py",
        before="(dv, 1), (begin, 0), (STEP, CV), (1, 0))\n",
        after="(dv, 1), (0, 0), (STEP, CV), (1, 0))\n",
        outputs=("o",),
        modelled_on="two pointers to blocks of which one is moved to the begin of a walk: under a left side of a window V is read from the first key of the sequence on, K from where the walk begins: weights are multiplied with values of as many keys before; tiles of rows whose walk begins at the first key, the LSE, and all without a left side are right",
        needs=("window",),
    ),
    OwnDefect(
        name="s14_whole_steps_past_the_keys",
        file="fourteenth/own/block_pointers.py",
        before="    whole = tl.maximum(tl.minimum(first + shift + 1, n), 0) if CAUSAL else n  #",
        after="    whole = tl.maximum(first + shift + 1, 0) if CAUSAL else n  #",
        outputs=("o", "lse"),
        modelled_on="FlagOpen/FlagAttention 6ab5b1e: a limit of a causal loop that is not clamped to the number of keys: under a top-left mask tiles of rows that begin behind the last key walk steps without a mask up to their first row: padded keys of logit 0 and value 0 weigh in the sum; rows before the last key, bottom-right masks, windows, and all without causal are right",
        needs=("causal",),
    ),
    OwnDefect(
        name="s14_last_chunk_without_gradients",
        file="fourteenth/own/scan.py",
        before="        for number in range(-(-end // chunk)):\n",
        after="        for number in range(end // chunk):\n",
        outputs=("dq", "dk", "dv", "dbias"),
        modelled_on="a number of chunks that is rounded down: the backward leaves out the last chunk where it is not full: dK, dV and dbias of its keys are 0, and dQ lacks what they give; numbers of walked keys that are multiples of a chunk, and the forward, are right",
        needs=("backward",),
    ),
    OwnDefect(
        name="s14_backward_walks_as_many_keys_as_rows",
        file="fourteenth/own/scan.py",
        before='        end, chunk = reach(p, n), dict(p.case.launch or ()).get("chunk", 32)\n        for number in',
        after='        end, chunk = reach(p, n), dict(p.case.launch or ()).get("chunk", 32)\n'
        "        end = end if p.causal is None else min(end, q.shape[2])\n        for number in",
        outputs=("dq", "dk", "dv", "dbias"),
        modelled_on="ModelTC/lightllm 1ef55b55: the limit of a causal loop without the keys that were there before: under a bottom-right mask with more keys than rows the backward walks only as many keys as there are rows: dK, dV and dbias of the last keys are 0, and dQ lacks what they give; top-left masks, as many keys as rows or fewer, no causal mask, and the forward are right",
        needs=("backward", "causal"),
    ),
    OwnDefect(
        name="s14_slopes_of_the_first_rank",
        file="fourteenth/own/ranks.py",
        before="        slopes = None if p.slopes is None else p.slopes[mine]\n",
        after="        slopes = None if p.slopes is None else p.slopes[: last - first]\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="vLLM's early ALiBi under tensor parallelism: every rank has the slopes of the first heads, as many as it has heads itself: the heads of all ranks but the first have slopes of other heads; the heads of the first rank, one rank, one head, and all without slopes are right",
        needs=("alibi",),
    ),
    OwnDefect(
        name="s14_remaining_heads_on_no_rank",
        file="fourteenth/own/ranks.py",
        before="    return [heads * rank // ranks for rank in range(ranks + 1)]\n",
        after="    return [min(max(heads // ranks, 1) * rank, heads) for rank in range(ranks + 1)]\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="fla-org/flash-linear-attention#1029: numbers of heads that do not divide: every rank has as many query heads as the quotient rounded down, and the last ones, which remain, belong to none: their O, LSE and dQ stay 0, and dK and dV lack what they give; numbers of heads that the ranks divide, fewer heads than ranks, and one rank are right",
    ),
)
