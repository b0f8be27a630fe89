"""Draws of dropout by other counters, planted in `planted.Plain`: the name that each must get, a case, the change."""

import dataclasses

import torch

from flashverify_oracles import dropout_keep
from tests.diagnosis.mask_defects import SQUARE
from tests.diagnosis.packed_and_paged import packed
from tests.diagnosis.planted import Plain
from tests.diagnosis.wiring_defects import MANY, PACKED


def counted(change):
    """Draws whose counters, the arguments of `dropout_keep`, are changed by a function of them and of the number of sequences."""

    def kept(self, problem, keep):
        case = problem.case
        row, key = (torch.arange(size).expand(case.batch, -1) for size in (case.seq_q, case.seq_k))
        sequence = torch.arange(case.batch)[:, None].expand(case.batch, case.seq_q)
        given = {"heads": case.heads_q, "sequence": sequence, "row": row, "key": key}
        stream = {"seed": problem.dropout_seed, "offset": problem.dropout_offset, "p": case.dropout}
        found = [dropout_keep(**stream, **each) for each in change(**given)]
        return torch.cat(found, 1).double()

    return {"kept": kept}


def by_the_key(change):
    return counted(lambda key, **rest: [{"key": change(key), **rest}])


def heads_before_sequences(heads, sequence, **rest):
    return [{"heads": 1, "sequence": head * len(sequence) + sequence, **rest} for head in range(heads)]


class RowsOfTheBuffer(packed()):
    """The draws of a packed row go by its number in the buffer."""

    supports = dataclasses.replace(Plain.supports, masks=("packed",))

    def kept(self, problem, keep):
        case, packed_ = problem.case, problem.case.mask.packed
        cu_q, cu_k = torch.tensor(packed_.cu_q), torch.tensor(packed_.cu_k)
        row, key = torch.arange(case.seq_q), torch.arange(case.seq_k)
        of_row, of_key = (torch.bucketize(x, cu[1:-1], right=True) for x, cu in ((row, cu_q), (key, cu_k)))
        return dropout_keep(
            seed=problem.dropout_seed,
            offset=problem.dropout_offset,
            p=case.dropout,
            heads=case.heads_q,
            sequence=of_row[None],
            row=row[None],
            key=(key - cu_k[of_key])[None],
        ).double()


def reshaped(self, problem, keep):
    """The draws of a tile of 16 rows and 32 keys, read as they lie in memory for 32 keys and 16 rows."""
    rows, keys = (-(-size // 32) * 32 for size in (problem.case.seq_q, problem.case.seq_k))
    batch = problem.case.batch
    whole = dropout_keep(
        seed=problem.dropout_seed,
        offset=problem.dropout_offset,
        p=problem.case.dropout,
        heads=problem.case.heads_q,
        sequence=torch.arange(batch)[:, None].expand(batch, rows),
        row=torch.arange(rows).expand(batch, rows),
        key=torch.arange(keys).expand(batch, keys),
    )
    tiles = whole.unflatten(2, (-1, 16)).unflatten(4, (-1, 32)).transpose(3, 4)
    read = tiles.flatten(4).unflatten(4, (32, 16)).mT.transpose(3, 4).flatten(2, 3).flatten(3, 4)
    return read[:, :, : problem.case.seq_q, : problem.case.seq_k].double()


DEFECTS = [
    (
        "dropout-counted-in-tiles",
        SQUARE + "dropout=0.5",
        counted(lambda row, **rest: [{"row": row % 16, **rest}]),
    ),
    ("dropout-counted-elsewhere", MANY + "dropout=0.5", by_the_key(lambda key: key + 4)),
    ("dropout-counted-elsewhere", MANY + "dropout=0.5", by_the_key(lambda key: key // 4)),
    ("dropout-stream-numbered-otherwise", MANY + "dropout=0.5", counted(heads_before_sequences)),
    ("dropout-counted-in-the-buffer", PACKED + "dropout=0.5", RowsOfTheBuffer),
]
RESHAPED = [("dropout-draws-of-another-pair", SQUARE + "dropout=0.5", {"kept": reshaped})]
