"""Held-out defects of kernels that are not the bundled ones, the seventh set; see `benchmarks/README.md`.

A forward in two passes in Triton and a backward over blocks of keys in plain torch, in the folder `own`. They are planted by themselves:
`plant` writes the changed module, which `as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s7_second_pass_without_the_cap",
        file="seventh/own/two_pass.py",
        before='        z = capped(tl.dot(q, tl.trans(rows_at(k_ptr, j, n, d, d, C)), input_precision="ieee") * scale, cap, CAP)\n',
        after='        z = tl.dot(q, tl.trans(rows_at(k_ptr, j, n, d, d, C)), input_precision="ieee") * scale\n',
        outputs=("o",),
        modelled_on="two passes of which one has a modifier: the weights of O are exponentials of logits without the softcap, the row sum is that of capped ones: O is not normalised under a softcap, and may overflow; the LSE is right, and so is all without a softcap",
        needs=("softcap",),
    ),
    OwnDefect(
        name="s7_keys_walked_as_far_as_rows",
        file="seventh/own/two_pass.py",
        before="    stop = tl.minimum(n, (tl.program_id(0) + 1) * BLOCK) if CAUSAL else n\n",
        after="    stop = tl.minimum(n, (tl.program_id(0) + 1) * BLOCK) if CAUSAL else tl.minimum(n, rows)\n",
        outputs=("o", "lse"),
        modelled_on="jax-ml/jax bd9a10e4: the length of q used for that of K: without a causal mask the walk over the keys ends after as many steps as cover the rows: keys behind are lost where a sequence has more keys than rows; right under the causal mask, and where keys are no more than rows",
    ),
    OwnDefect(
        name="s7_scale_split_by_its_root",
        file="seventh/own/key_blocks.py",
        before="            s = x @ wide_k.mT * p.scale\n",
        after="            root = abs(p.scale) ** 0.5\n            s = (x * root) @ (wide_k * root).mT\n",
        outputs=("dq", "dk", "dv"),
        modelled_on="a scale that is multiplied into both operands by its root: the backward recomputes the weights with the size of a negative scale: all gradients are wrong for it, the forward is right, and so are scales of 0 and above",
        needs=("backward",),
    ),
)
