"""Defects of pages, lengths, trees, prefixes and of terms by their values, planted in `planted.Plain`."""

import dataclasses

import torch

from flashverify.numerics import Form
from tests.diagnosis.mask_defects import FORWARD
from tests.diagnosis.packed_and_paged import entry_at, packed, paged
from tests.diagnosis.planted import Plain
from tests.diagnosis.wiring_defects import ALIBI, BIAS, PACKED, PAGED, SINK

TREE = FORWARD + "tree=-1,0,0,-1,2"
TWO_TREES = FORWARD + "batch=2 tree=-1,0,0,0,1/-1,0,1,1,3"
LENGTHS = FORWARD + "batch=2 klen=0,5 qlen=5,0 "
PREFIX = FORWARD.replace("seq_q=5 seq_k=7", "seq_q=3 seq_k=9") + "causal=top-left prefix=7"
NEGATIVE = FORWARD.replace("seq_k=7", "seq_k=2") + "scale=2"
RELATIVE = FORWARD + "relative_bias=8,6,both heads_q=2 heads_kv=2 seed=1"


def parents(change):
    """Another parent of each node, by all parents and the node."""

    def ancestors(self, given, node):
        while node >= 0:
            yield node
            node = change(given, node)

    return {"ancestors": ancestors}


class ParentsOverTheBuffer(Plain):
    """A parent is a row of all trees, of which those of the first entry come first."""

    def ancestors(self, given, node):
        yield node
        if given[node] >= 0:
            yield from Plain.ancestors(self, self.first, given[node])

    def parents(self, tree, batch):
        self.first = tree[0] if isinstance(tree[0], tuple) else tree
        return Plain.parents(self, tree, batch)


def zero_is_missing(names):
    """Lengths of 0 are those of the room."""

    class Room(Plain):
        def see(self, problem):
            case, changed = problem.case, {}
            for name, size in (("key_lengths", case.seq_k), ("query_lengths", case.seq_q)):
                given = getattr(problem, name)
                if given is not None and name in names:
                    changed[name] = torch.where(given == 0, size, given)
            return super().see(dataclasses.replace(problem, **changed))

    return Room


def of_pages(keys):
    """Other numbers of keys in pages."""

    class Lengths(paged(lambda table, b, key, size: table[b, key // size])):
        def forward(self, problem):
            size = problem.case.storage.page_size
            if size is None:
                return super().forward(problem)
            room = torch.full((problem.case.batch,), problem.case.seq_k, dtype=torch.int32)
            given = room if problem.key_lengths is None else problem.key_lengths
            return super().forward(dataclasses.replace(problem, key_lengths=keys(given, size).to(torch.int32)))

    return Lengths


class StoredByKeyLimits(packed()):
    """Rows of the LSE lie where the keys of their sequence begin; sequences are stored in order."""

    def lse(self, lse, without_sink):
        stored = torch.full_like(lse, torch.nan)
        for (first, end), to in zip(zip(self.cu_q, self.cu_q[1:], strict=False), self.cu_k, strict=False):
            count = min(end - first, max(lse.shape[-1] - to, 0))
            stored[..., to : to + count] = lse[..., first : first + count]
        return stored

    def forward(self, problem):
        self.cu_q, self.cu_k = problem.case.mask.packed.cu_q, problem.case.mask.packed.cu_k
        return super().forward(problem)


def merged(change=lambda every, lse: lse, kept=2):
    """Two halves of the keys are merged, of which the first `kept` are; the LSE is `change` of those of the halves and the right one."""

    class Merged(Plain):
        supports = dataclasses.replace(Plain.supports, masks=())

        def form(self, case):
            return Form(n_splits=2)

        def drop_keys(self, see):
            return see & (torch.arange(see.shape[-1]) < see.shape[-1] // 2) if kept == 1 else see

        def output(self, o, z, v, lse):
            cut = z.shape[-1] // 2
            self.every = torch.stack([z[..., :cut].logsumexp(-1), z[..., cut:].logsumexp(-1)])
            return o

        def lse(self, lse, without_sink):
            return change(self.every, lse)

    return Merged


def table(change):
    return {"relative_distance": lambda s, d, reach: change(d).clamp(-reach, reach)}


def _whole(n, size):
    return torch.where(n % size == 0, n - size, n)


DEFECTS = [
    ("tree-parent-zero-as-none", TREE, parents(lambda p, n: p[n] if p[n] > 0 else -1)),
    ("tree-roots-below-node-zero", TREE, parents(lambda p, n: max(p[n], 0) if n else -1)),
    ("tree-roots-below-the-node-before", TREE, parents(lambda p, n: p[n] if p[n] >= 0 else n - 1)),
    ("tree-parent-off-by-one", FORWARD + "tree=-1,0,1,2,2", parents(lambda p, n: p[n] - 1)),
    ("tree-parent-of-neighbour", FORWARD + "tree=-1,0,0,1,1", parents(lambda p, n: p[n - 1] if n else -1)),
    ("tree-parents-over-the-buffer", TWO_TREES, ParentsOverTheBuffer),
    ("key-lengths-zero-as-missing", LENGTHS, zero_is_missing(("key_lengths",))),
    ("query-lengths-zero-as-missing", LENGTHS, zero_is_missing(("query_lengths",))),
    ("full-last-page-missing", PAGED.replace("seq_k=70", "seq_k=64"), of_pages(_whole)),
    ("partial-last-page-missing", PAGED, of_pages(lambda n, size: n // size * size)),
    ("last-page-missing", PAGED, of_pages(lambda n, size: (n - 1) // size * size)),
    ("keys-of-one-page-at-most", PAGED, of_pages(lambda n, size: n.clamp(max=size))),
    ("page-of-the-first-of-a-group", PAGED, entry_at(lambda width, b, key, size: b * width + key // size // 2 * 2)),
    (
        "page-of-the-last-entry-read",
        PAGED,
        entry_at(lambda width, b, key, size: b * width + min(key // size, 1)),
    ),
    ("page-of-the-first-of-several", PAGED, entry_at(lambda width, b, key, size: b * width + key // 64 * 64 // size)),
    ("pages-in-reverse", PAGED, entry_at(lambda width, b, key, size: b * width + width - 1 - key // size)),
    ("keys-as-zeros", PAGED, paged(lambda table, b, key, size: -1)),
    ("lse-stored-by-key-limits", PACKED, StoredByKeyLimits),
    ("merge-returns-the-largest-lse", FORWARD, merged(lambda every, lse: every.amax(0))),
    ("merge-returns-the-lse-of-one-part", FORWARD, merged(lambda every, lse: every[-1])),
    ("merge-adds-another-pivot", NEGATIVE, merged(lambda every, lse: lse + every.amax(0).clamp(max=0))),
    ("merge-of-the-first-parts", FORWARD, merged(kept=1)),
    ("prefix-within-the-rows", PREFIX, {"see": lambda s, p: _prefix(s, p, lambda n, rows, _: min(n, rows))}),
    (
        "prefix-within-the-extra-keys",
        PREFIX,
        {"see": lambda s, p: _prefix(s, p, lambda n, rows, keys: min(n, max(keys - rows, 0)))},
    ),
    ("bias-values-of-one-sign", BIAS, {"add_bias": lambda s, z, b: z + b.clamp(max=0)}),
    ("relative-bias-values-of-one-sign", RELATIVE, {"table": lambda s, t: t.abs()}),
    ("sink-values-of-one-sign", SINK, {"sinks": lambda s, x: x.clamp(min=0)}),
    ("alibi-values-of-one-sign", ALIBI.replace("alibi=yes", "alibi=wild"), {"alibi_slopes": lambda s, x: x.abs()}),
    ("relative-bias-by-size", RELATIVE, table(torch.abs)),
    ("relative-bias-on-one-side", RELATIVE, table(lambda d: d.clamp(max=0))),
]


def _prefix(self, problem, change):
    """The mask with other prefixes, by those declared and by the rows and keys of a sequence without lengths."""
    case = problem.case
    lengths = [change(int(n), case.seq_q, case.seq_k) for n in problem.prefix_lengths]
    return Plain.see(self, dataclasses.replace(problem, prefix_lengths=torch.tensor(lengths)))
