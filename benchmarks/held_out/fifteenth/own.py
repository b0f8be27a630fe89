"""Held-out defects of kernels that are not the bundled ones, the fifteenth set; see `benchmarks/README.md`.

Two kernels in Triton, forward and backward by plain pointers with strides and packed sequences by a list of tiles, and two in plain torch: chunks
of rows with their history, which autograd differentiates, and a prompt that comes in pieces over a growing cache, in the folder `own`. They
are planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s15_lengths_asked_without_causal_alone",
        file="fifteenth/own/strided.py",
        before="    see = (i < rows) & (j < n)\n    if CAUSAL:\n        see = see & (j <= i + shift)\n",
        after="    see = i < rows\n    if CAUSAL:\n        see = see & (j <= i + shift)\n    else:\n        see = see & (j < n)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="Dao-AILab/flash-attention's first kernels in Triton: a boundary of the keys that the causal mask is taken to imply: under a top-left causal mask rows behind the last key see the padding up to the end of the last step of keys (and up to themselves), with a product of 0 and a value of 0: the LSE is too large, O too small, and the gradients follow; rows before the last key, key numbers that are whole steps, bottom-right masks, and all without a causal mask are right",
        needs=("causal",),
    ),
    OwnDefect(
        name="s15_gradients_laid_out_as_the_inputs",
        file="fifteenth/own/strided.py",
        before="    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (p.q, p.k, p.v))\n",
        after="    dq, dk, dv = (torch.empty_like(x) for x in (p.q, p.k, p.v))\n",
        outputs=("dq", "dk", "dv"),
        modelled_on="Dao-AILab/flash-attention#355: torch.empty_like, which keeps the strides of a dense tensor, and a kernel that writes contiguous rows: dQ, dK and dV of tensors that lie as [B, S, H, D], with gaps too, belong to other rows and heads of the same sequence; tensors that lie as [B, H, S, D], one head or one row, and the forward are right",
        needs=("backward",),
    ),
    OwnDefect(
        name="s15_window_ends_behind_the_first_key",
        file="fifteenth/own/strided.py",
        before="    stop = tl.minimum(rows, first + STEP - shift + left) if LEFT else rows\n",
        after="    stop = tl.minimum(rows, first + 1 - shift + left) if LEFT else rows\n",
        outputs=("dk", "dv"),
        modelled_on="fla-org/flash-linear-attention cd5b9947: a limit of a walk by the first position of a tile where the last one is meant: under a left side of a window the walk of dK and dV over the rows ends with the tile of rows that holds the last row that sees the first key of the tile of keys: later rows give nothing to the other keys of the tile; dQ, the forward, and all without a left side are right",
        needs=("backward", "window"),
    ),
    OwnDefect(
        name="s15_keys_in_the_order_of_the_buffer",
        file="fifteenth/own/work_list.py",
        before="    starts, key_starts = cu_q[:-1][order], cu_k[:-1][order]\n",
        after="    starts, key_starts = cu_q[:-1][order], cu_k[:-1]\n",
        outputs=("o", "lse"),
        modelled_on="a table that is sorted by length, of which one column is not: each sequence has its own rows, its own number of keys and, in place of where its own keys start, where those of the sequence start that has in the buffer the number which it has among the sequences by falling number of keys: it reads keys and values of others (and behind the last ones); one sequence, and sequences that come with falling numbers of keys, are right",
        needs=("sequences",),
    ),
    OwnDefect(
        name="s15_even_by_the_longest_sequence",
        file="fifteenth/own/work_list.py",
        before="    return bool((cu_k.diff() % step == 0).all())\n",
        after="    return int(cu_k.diff().max()) % step == 0\n",
        outputs=("o", "lse"),
        modelled_on="Dao-AILab/flash-attention's flash_attn_triton.py, whose EVEN_N asks the longest sequence: where the keys of the longest sequence are whole steps no step is masked at the end of the keys: rows of shorter sequences see the keys behind their last one, up to the end of the step, which are those of the next sequence (or lie behind the last one); a causal mask still hides what comes after a row; sequences of whole steps, and longest sequences that are none, are right",
        needs=("packed",),
    ),
    OwnDefect(
        name="s15_history_is_detached",
        file="fifteenth/own/history.py",
        before="    history = part(x, k[:, :low], v[:, :low], None, scale)\n",
        after="    history = part(x, k[:, :low].detach(), v[:, :low].detach(), None, scale)\n",
        outputs=("dk", "dv"),
        modelled_on="Transformer-XL's memory, which no gradient passes: under a causal mask keys and values get no gradient from the rows of later chunks, only from those of the chunk that they stand in; dQ, the forward, sequences of one chunk, and all without a causal mask are right",
        needs=("backward", "causal"),
    ),
    OwnDefect(
        name="s15_triangle_of_the_chunk",
        file="fifteenth/own/history.py",
        before="    see = torch.arange(low, high) <= torch.arange(begin, stop)[:, None] + shift\n",
        after="    see = torch.ones(stop - begin, high - low, dtype=torch.bool).tril()\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="pytorch/pytorch#108108: a triangle that begins in the first corner of a chunk: under a bottom-right causal mask with more rows than keys that count, in the chunk in which the first rows that see a key stand behind rows that see none, rows see as many keys too many as there are rows of the chunk before the first key, and those rows see keys, too; all other chunks, chunks that begin with the first key, top-left masks, and as many keys as rows or more are right",
        needs=("causal",),
    ),
    OwnDefect(
        name="s15_cache_of_the_call_before",
        file="fifteenth/own/appended.py",
        before="    cache.count = 0\n    return cache\n",
        after="    return cache\n",
        outputs=("o", "lse"),
        modelled_on="flashinfer-ai/flashinfer#1028: state: a cache whose fill level is not reset: a call whose keys and values have the shapes of those of an earlier call finds its cache filled and appends nothing (or what is missing): it attends to the keys and values of the earlier call; the first call of every shape is right",
    ),
    OwnDefect(
        name="s15_places_by_the_end_of_the_cache",
        file="fifteenth/own/appended.py",
        before="        at = torch.arange(begin, end)[:, None] + shift\n",
        after="        at = torch.arange(begin, end)[:, None] + there[0].shape[2] - end\n",
        outputs=("o", "lse"),
        modelled_on="GPT-2's bias[ns - nd : ns], for which the last row of a piece always stands at the last key of the cache: under a top-left causal mask the rows of a piece that ends behind the last key see as many keys fewer (and stand as many places earlier for a window and ALiBi) as the piece ends behind it; without a causal mask, where the cache is full from the start, every piece stands at the last keys for a window and ALiBi; pieces that end within the keys under a causal mask, bottom-right masks, and rows that see all keys without a term or a window are right",
    ),
)
