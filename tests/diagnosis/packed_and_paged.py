"""Packed sequences and pages for `planted.Plain`, with functions that say which keys and pages are read."""

import dataclasses

import torch

from tests.diagnosis.planted import Plain


def packed(
    keys=lambda first, count, rows: (first, count), sequence=lambda row, cu: torch.bucketize(row, cu, right=True)
):
    """Packed sequences, whose first keys, numbers of keys, and the sequence of each row are functions."""

    class Packed(Plain):
        supports = dataclasses.replace(Plain.supports, masks=("packed", "causal"))

        def see(self, problem):
            case = problem.case
            cu_q, cu_k = torch.tensor(case.mask.packed.cu_q), torch.tensor(case.mask.packed.cu_k)
            first, count = keys(cu_k[:-1], cu_k.diff(), cu_q.diff())
            row = torch.arange(case.seq_q)
            of = sequence(row, cu_q[1:-1])
            inside = (row < cu_q[-1])[:, None]
            number = torch.arange(case.seq_k) - first[of][:, None]
            see = inside & (number >= 0) & (number < count[of][:, None])
            return see.expand(1, case.heads_q, -1, -1)

        def forward(self, problem):
            return super().forward(dataclasses.replace(problem, key_lengths=None, query_lengths=None))

    return Packed


def paged(entry):
    """K and V from pages, whose places in the pool are `entry(table, sequence, key, keys per page)`; below 0 for zeros."""

    class Paged(Plain):
        supports = dataclasses.replace(Plain.supports, page_sizes=(16, 32, 64), max_seq_q=4)

        def forward(self, problem):
            pages, case = problem.pages, problem.case
            if pages is None:
                return super().forward(problem)
            read = {"k": torch.zeros(problem.k.shape), "v": torch.zeros(problem.v.shape)}
            size = case.storage.page_size
            for b in range(case.batch):
                for key in range(case.seq_k):
                    page = min(int(entry(pages.table, b, key, size)), len(pages.k) - 1)
                    if page < 0:
                        continue
                    for name, pool in (("k", pages.k), ("v", pages.v)):
                        read[name][b, :, key] = torch.nan_to_num(pool[page, key % size], 0.0, 0.0, 0.0)
            return super().forward(dataclasses.replace(problem, **read, pages=None))

    return Paged


def entry_at(change):
    """The entry of the flat table, whose garbage is not followed."""

    def entry(table, b, key, size):
        flat = table.reshape(-1)
        return flat[min(max(change(table.shape[1], b, key, size), 0), len(flat) - 1)]

    return paged(entry)
