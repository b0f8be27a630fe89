"""What belongs to a row and is taken from another sequence, head or row is named, with that place."""

import dataclasses

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.observe import look
from tests.diagnosis.packed_and_paged import packed
from tests.diagnosis.planted import Plain, planted
from tests.diagnosis.test_diagnosis import named

CASE = "fv1 batch=2 heads_q=6 heads_kv=2 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 "
FORWARD = CASE + "backward=no "
HEAD_BY_HEAD = "the rows of its group lie head by head and are read row by row"
ROW_BY_ROW = "the rows of its group lie row by row and are read head by head"


def refolded(x, kv_heads, rows):
    """`[B, Hq, Sq, ...]` laid out head by head in each group and read row by row."""
    group = x.shape[1] // kv_heads
    memory = x.unflatten(1, (kv_heads, group)).flatten(2, 3)
    return memory.unflatten(2, (rows, group)).transpose(2, 3).flatten(1, 2)


def of(problem, x):
    return refolded(x, problem.k.shape[1], problem.q.shape[2])


class Queries(Plain):
    def forward(self, problem):
        return super().forward(dataclasses.replace(problem, q=of(problem, problem.q)))


class SlopesInTurn(Plain):
    """Slope [r % group] for row r of a kv head, whose rows lie head by head."""

    def add(self, problem):
        _, h, n, _ = problem.case.shape_q
        slopes = problem.slopes.double()
        group = h // problem.case.heads_kv
        row = torch.arange(group * n)
        wrong = torch.stack([slopes[first + row % group] for first in range(0, h, group)]).view(h, n)
        return -(wrong - slopes[:, None])[None, :, :, None] * self.distance(problem).abs().double()[:, None]

    def forward(self, problem):
        return super().forward(dataclasses.replace(problem, bias=self.add(problem)))


class LastHeadOfTheGroup(Plain):
    def forward(self, problem):
        self.kv_heads = problem.k.shape[1]
        return super().forward(problem)

    def sinks(self, sink):
        return sink.view(self.kv_heads, -1)[:, -1:].expand(-1, sink.numel() // self.kv_heads).flatten()


class GradientOfO(Plain):
    """DO by rows, where it is laid out by heads."""

    def backward(self, problem, forward):
        right = super().backward(problem, forward)
        found = super().backward(dataclasses.replace(problem, do=of(problem, problem.do)), forward)
        return dataclasses.replace(found, delta=right.delta) if self.own_delta else found

    own_delta = False


class StoredLse(Plain):
    def forward(self, problem):
        found = super().forward(problem)
        return dataclasses.replace(found, lse=of(problem, found.lse))


class LengthsByHead(Plain):
    """A program takes its head for its sequence."""

    def see(self, problem):
        see = super().see(dataclasses.replace(problem, key_lengths=None))
        length = problem.key_lengths[torch.arange(see.shape[1]) % see.shape[0]]
        return see & (torch.arange(see.shape[3]) < length.view(1, -1, 1, 1))


class DlseOfTheFirstRows(packed()):
    """Each packed sequence reads it where that of the first one lies."""

    def backward(self, problem, forward):
        cu, row = torch.tensor(problem.case.mask.packed.cu_q), torch.arange(problem.q.shape[2])
        number = row - cu[torch.bucketize(row, cu[1:-1], right=True)]
        return super().backward(dataclasses.replace(problem, dlse=problem.dlse[:, :, number]), forward)


class KvOfOtherPrograms(Plain):
    """The heads of a sequence begin at b * Hq in the memory of K."""

    def forward(self, problem):
        batch, heads = problem.q.shape[:2]
        kv_heads = problem.k.shape[1]
        number = torch.arange(batch)[:, None] * heads + torch.arange(kv_heads)
        k = problem.k.flatten(0, 1)[number % (batch * kv_heads)]
        return super().forward(dataclasses.replace(problem, k=k))


TAKEN = [
    pytest.param(*x, id=x[2])
    for x in (
        (
            KvOfOtherPrograms,
            FORWARD.replace("heads_kv=2", "heads_kv=3"),
            "head-numbered-otherwise",
            "(b * Hq + h // group, of k)",
        ),
        (Queries, FORWARD, "queries-of-other-rows", HEAD_BY_HEAD),
        (SlopesInTurn, FORWARD + "alibi=yes", "slopes-of-other-rows", ROW_BY_ROW),
        (LastHeadOfTheGroup, FORWARD + "sink=yes", "sinks-of-other-heads", "the last head of its group"),
        (GradientOfO, CASE, "backward-do-of-other-rows", HEAD_BY_HEAD),
        (
            DlseOfTheFirstRows,
            "fv1 heads_q=2 heads_kv=2 seq_q=7 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32 packed=0,3,7/0,4,9 dlse=yes",
            "dlse-of-other-rows",
            "the row of the buffer that has its number inside its sequence",
        ),
        (StoredLse, FORWARD, "lse-of-other-rows", HEAD_BY_HEAD),
        (LengthsByHead, FORWARD + "klen=3,6", "key-lengths-of-other-programs", "number of the head, modulo"),
    )
]
WHOLE = ("queries-of-other-rows",)
"""They are put to the whole diagnosis; of the others it is asked what their own semantics expects."""


@pytest.mark.parametrize(("subject", "case", "name", "place"), [x for x in TAKEN if x.id not in WHOLE])
def test_what_is_taken_from_another_row_is_what_a_semantics_expects_with_that_place(subject, case, name, place):
    scene = look(subject(), parse_case(case))
    semantics = next(each for each in SEMANTICS if each.name == name)
    failing = frozenset(scene.failing())

    assert failing
    assert any(
        place in f"{semantics.sentence} ({each.detail})" and scene.agrees(each, failing)
        for each in semantics.build(scene)
    )


@pytest.mark.parametrize(
    ("subject", "case", "name", "place"),
    [pytest.param(*x.values, id=x.id, marks=[pytest.mark.thorough] * (x.id not in WHOLE)) for x in TAKEN],
)
def test_what_is_taken_from_another_row_is_named_with_its_place(subject, case, name, place):
    found = named(subject(), case)

    assert found.name == name
    assert place in found.sentence


@pytest.mark.thorough
def test_a_place_that_is_the_same_on_no_case_is_not_named():
    class Changing(Plain):
        """Q of the next head on even numbers of rows, of the first one of the group on odd ones."""

        def forward(self, problem):
            even = problem.q.shape[2] % 2 == 0
            q = problem.q.flip(1) if even else of(problem, problem.q)
            return super().forward(dataclasses.replace(problem, q=q))

    assert named(Changing(), FORWARD, seconds=4).name != "queries-of-other-rows"


class MirroredKeys(Plain):
    def see(self, problem):
        return super().see(dataclasses.replace(problem, key_lengths=problem.key_lengths.flip(0)))


class MirroredQueries(Plain):
    def see(self, problem):
        return super().see(dataclasses.replace(problem, query_lengths=problem.query_lengths.flip(0)))


class SequenceBefore(Plain):
    def forward(self, problem):
        before = (torch.arange(problem.k.shape[0]) - 1).clamp(min=0)
        return super().forward(dataclasses.replace(problem, v=problem.v[before]))


@pytest.mark.parametrize(
    ("subject", "lengths", "name"),
    [
        pytest.param(MirroredKeys, "klen=3,6", "key-lengths-of-mirrored-sequence", marks=pytest.mark.thorough),
        pytest.param(MirroredQueries, "qlen=2,5", "query-lengths-of-mirrored-sequence", marks=pytest.mark.thorough),
        pytest.param(
            lambda: planted(kv_head=lambda s, h, group, kv: kv - 1 - h // group),
            "",
            "head-mirrored",
            marks=pytest.mark.thorough,
        ),
        (SequenceBefore, "", "batch-before"),
    ],
)
def test_the_other_one_of_two_is_told_from_the_next_one_by_three(subject, lengths, name):
    found = named(subject(), FORWARD + lengths)

    assert (found.name, found.also) == (name, ())


class HeadsOfVByTheSizeOfK(Plain):
    def forward(self, problem):
        v, flat = problem.v, problem.v.flatten()
        first = torch.arange(v.shape[0] * v.shape[1])[:, None] * problem.k[0, 0].numel()
        at = (first + torch.arange(v[0, 0].numel())).clamp(max=flat.numel() - 1)
        return super().forward(dataclasses.replace(problem, v=flat[at].view(v.shape)))


class HeadsOfKInWholeTiles(Plain):
    def forward(self, problem):
        k, flat = problem.k, problem.k.flatten()
        length, dim = k.shape[2:]
        first = torch.arange(k.shape[0] * k.shape[1])[:, None] * (-(-length // 16) * 16 * dim)
        at = (first + torch.arange(length * dim)).clamp(max=flat.numel() - 1)
        return super().forward(dataclasses.replace(problem, k=flat[at].view(k.shape)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("subject", "case", "detail"),
    [
        (
            HeadsOfVByTheSizeOfK,
            FORWARD.replace("dim_v=8", "dim_v=16"),
            "heads of V as if they had as many channels as K has",
        ),
        pytest.param(
            HeadsOfKInWholeTiles,
            FORWARD.replace("seq_k=7", "seq_k=30"),
            "heads of K as if they had whole tiles of 16 rows",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_heads_that_begin_elsewhere_are_named(subject, case, detail):
    found = named(subject(), case)

    assert found.name == "heads-begin-elsewhere"
    assert detail in found.sentence
