"""Defects of windows that are another kind of local attention, of 64-bit integers and of padded tables, planted in `planted.Plain`."""

import dataclasses
import itertools

import torch

from tests.diagnosis.mask_defects import FORWARD, banded, given
from tests.diagnosis.packed_and_paged import packed, paged
from tests.diagnosis.planted import Plain
from tests.diagnosis.wiring_defects import PACKED, PAGED

WINDOW = FORWARD + "causal=bottom-right "
EMPTY = FORWARD.replace("seq_q=5 seq_k=7", "seq_q=3 seq_k=14") + "packed=0,0,1,1,2,3/0,4,6,9,12,14 padding=dirt"


def halves(numbers):
    """What 32-bit loads find in 64-bit numbers."""
    return numbers.long().contiguous().view(torch.int32)[: len(numbers)]


def half_of(table, b, key, size):
    """The page of a key of a table whose entries have 64 bits."""
    return table[b].long().contiguous().view(torch.int32)[key // size]


class LongestWindow(Plain):
    """Keys before the windows of the longest sequence are not read."""

    def forward(self, problem):
        lengths = problem.key_lengths
        self.first = None if lengths is None or not problem.window else int(lengths.max()) - problem.case.seq_q
        self.left = problem.window[0] if problem.window else None
        return super().forward(problem)

    def window(self, i, j, left, right):
        see = super().window(i, j, left, right)
        return see if self.first is None or left is None else see & (j >= self.first - left)


class PaddedBits(packed()):
    """The bits of row i of sequence s are those of row s * longest + i, the last row's behind the table."""

    supports = dataclasses.replace(Plain.supports, masks=("packed", "causal", "bitmap"))

    def see(self, problem):
        see = super().see(problem)
        return see if problem.bitmap is None else see & problem.bitmap[:, :, padded(problem)]


class PaddedBias(packed()):
    """The bias likewise."""

    def forward(self, problem):
        bias = problem.bias
        moved = bias if bias is None else bias[:, :, padded(problem)]
        return super().forward(dataclasses.replace(problem, bias=moved))


def padded(problem):
    cu = problem.case.mask.packed.cu_q
    longest = max(b - a for a, b in itertools.pairwise(cu))
    rows = [s * longest + i for s, (a, b) in enumerate(itertools.pairwise(cu)) for i in range(b - a)]
    rows += range(len(rows), problem.case.seq_q)
    return torch.tensor(rows).clamp(max=problem.case.seq_q - 1)


class RowPerSequence(
    packed(sequence=lambda row, cu: row if is_decoding(cu, row) else torch.bucketize(row, cu, right=True))
):
    """Row r is that of sequence r where none has more than one."""


def is_decoding(cu, row):
    limits = torch.cat([torch.tensor([0]), cu, torch.tensor([len(row)])])
    return int(limits.diff().max()) <= 1


DEFECTS = [
    (
        "window-as-chunks",
        WINDOW + "window=2,*",
        banded(lambda i, j, left, right: j >= i // (left + 1) * (left + 1)),
    ),
    (
        "window-keeps-the-first-keys",
        WINDOW + "window=1,*",
        banded(lambda i, j, left, right: (i - j <= left) | (j < 2)),
    ),
    (
        "window-keeps-as-many-first-keys",
        WINDOW + "window=1,*",
        banded(lambda i, j, left, right: (i - j <= left) | (j <= left)),
    ),
    ("window-begins-by-the-longest-sequence", WINDOW + "window=1,* batch=2 klen=5,7 padding=dirt", LongestWindow),
    (
        "key-lengths-of-64-bits",
        FORWARD + "batch=3 klen=4,7,5 padding=dirt",
        given(key_lengths=lambda p: halves(p.key_lengths)),
    ),
    (
        "query-lengths-of-64-bits",
        FORWARD + "batch=3 qlen=4,5,3 padding=dirt",
        given(query_lengths=lambda p: halves(p.query_lengths)),
    ),
    (
        "prefix-lengths-of-64-bits",
        FORWARD + "batch=3 causal=top-left prefix=3,4,2",
        given(prefix_lengths=lambda p: halves(p.prefix_lengths)),
    ),
    (
        "key-lengths-cut",
        FORWARD.replace("seq_k=7", "seq_k=40") + "batch=2 klen=36,20",
        given(key_lengths=lambda p: None if p.key_lengths is None else p.key_lengths.clamp(max=32)),
    ),
    ("page-table-of-64-bits", PAGED, paged(half_of)),
    ("bitmap-of-padded-rows", PACKED + "bitmap=128,3", PaddedBits),
    ("bias-of-padded-rows", PACKED + "bias=full", PaddedBias),
    ("packed-row-for-each-sequence", EMPTY, RowPerSequence),
    (
        "window-sides-exchanged",
        WINDOW + "window=3,*",
        {"causal": lambda s, i, j: (j <= i) | True} | banded(lambda i, j, left, right: (j >= i) & (j - i <= left)),
    ),
]
