"""Held-out defects of kernels that are not the bundled ones, the fifth set; see `benchmarks/README.md`.

Packed sequences and attention over an encoder in plain torch, each with a backward by hand, and a chunked prefill of pages in Triton, in the
folder `own`. They are planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="f5_mask_of_the_first_block_in_the_backward",
        file="fifth/own/packed.py",
        before="                shown = see[:, part]\n",
        after="                shown = see[:, : wide_k[:, part].shape[1]]\n",
        outputs=("dq", "dk", "dv"),
        modelled_on="the offset of a block of keys is applied to the loads and not to the mask: the backward takes for every block of 32 keys the mask of the first keys of the sequence: sequences of more than 32 keys have wrong dQ, dK and dV under a causal mask or a window; the forward, dsink and shorter sequences are right",
        needs=("packed", "backward"),
    ),
    OwnDefect(
        name="f5_mask_kept_by_lengths",
        file="fifth/own/packed.py",
        before="    key = (rows, keys, p.causal, p.window, p.window_alignment)\n",
        after="    key = (rows, keys)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="the mask of a sequence is kept by its numbers of rows and keys alone: a later sequence of the same lengths has the mask of the first such one, whatever causal mask and window are asked for; the first of each lengths is right, and so are runs in which the mask stays the same",
        needs=("packed",),
    ),
    OwnDefect(
        name="f5_empty_rows_give_to_dsink",
        file="fifth/own/packed.py",
        before="torch.where(some, pivot, torch.inf))\n",
        after="pivot)\n",
        outputs=("dsink",),
        modelled_on="the gradient of the sink counts rows that see no key, with the weight exp(sink) of an LSE of 0: too small by that weight times the sum of their incoming gradients of the LSE with the sign of these turned; right without such rows and without a gradient through the LSE, and all else is right",
        needs=("packed", "sink", "backward"),
    ),
    OwnDefect(
        name="f5_context_without_the_slopes",
        file="fifth/own/prefill.py",
        before="        m, total, acc = step_of(q, k, v, see, slope * tl.abs(at - j).to(tl.float32), m, total, acc, scale)\n",
        after="        m, total, acc = step_of(q, k, v, see, 0.0, m, total, acc, scale)\n",
        outputs=("o", "lse"),
        modelled_on="a chunked prefill of two loops, of which the first one, over the keys before the chunk, lacks ALiBi: O and LSE are wrong where a sequence has more keys than queries; sequences without keys before the chunk are right",
        needs=("alibi",),
    ),
    OwnDefect(
        name="f5_context_of_whole_pages",
        file="fifth/own/prefill.py",
        before="    for start in range(first, before, STEP):\n        key = start + tl.arange(0, STEP)\n        there = key < before\n",
        after="    for start in range(first, before // PAGE * PAGE, STEP):\n"
        "        key = start + tl.arange(0, STEP)\n"
        "        there = key < before // PAGE * PAGE\n",
        outputs=("o", "lse"),
        modelled_on="a chunked prefill whose loop over the keys before the chunk walks whole pages: the keys of a last page of the context that the chunk begins in are lost; right where the keys before the chunk fill their pages, with pages of one key, and without keys before the chunk",
        needs=("paged",),
    ),
    OwnDefect(
        name="f5_bias_before_the_scale_in_the_backward",
        file="fifth/own/cross.py",
        before="            z = dot * p.scale + bias_of(bias, b, heads, n)\n",
        after="            z = (dot + bias_of(bias, b, heads, n)) * p.scale\n",
        outputs=("dq", "dk", "dv", "dbias"),
        modelled_on="the backward recomputes the weights with a bias that is added before the scale: all gradients are wrong with a bias, O and LSE are right; so is a scale of 1, or a bias of 0",
        needs=("bias", "backward"),
    ),
    OwnDefect(
        name="f5_bias_of_the_first_sequence",
        file="fifth/own/cross.py",
        before="    return (b * heads + torch.arange(heads)) % count\n",
        after="    return torch.arange(heads) % count\n",
        outputs=("o", "lse", "dq", "dk", "dv", "dbias"),
        modelled_on="a bias is taken to be broadcast over the batch: where every sequence has a bias of its own, all take that of the first one, whose dbias is the sum over all sequences while that of the others is 0; right with a batch of one, and where the batch shares the bias",
        needs=("bias", "sequences"),
    ),
    OwnDefect(
        name="f5_a_length_is_at_least_one",
        file="fifth/own/cross.py",
        before="else p.key_lengths.tolist()\n",
        after="else p.key_lengths.clamp(min=1).tolist()\n",
        outputs=("o", "lse", "dk", "dv"),
        modelled_on="key lengths are raised to 1 so that no row is without keys: the rows of a sequence of length 0 see its first key, which is padding: O is its value, the LSE is finite, and it gets gradients; every other length is right",
        needs=("key_lengths",),
    ),
)
