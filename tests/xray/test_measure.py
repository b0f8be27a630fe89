"""What is read of an exact attention with planted errors: each is named, and nothing else."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.errors import UsageError
from flashverify.subjects import Contract
from flashverify.xray.codes import signs
from flashverify.xray.difference import differences, record_of
from flashverify.xray.measure import measure
from flashverify.xray.record import record_text
from flashverify.xray.view import compare
from tests.xray.weighted import Weighted

CAUSAL = parse_case("fv1 batch=2 heads_q=4 heads_kv=2 seq_q=24 seq_k=24 causal=top-left seed=5")
MASKS = {
    "none": "fv1 seq_q=17 seq_k=33 heads_q=2",
    "causal": "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=20 seq_k=31 causal=bottom-right klen=5,31 dtype=bf16",
    "window": "fv1 seq_q=40 seq_k=40 window=3,5 dtype=fp32 layout=bshd gap=8",
    "lengths": "fv1 batch=3 seq_q=20 seq_k=20 klen=0,7,20 qlen=20,3,0 padding=nan",
    "packed": "fv1 seq_q=40 seq_k=44 packed=0,10,10,35/0,9,20,40 causal=bottom-right",
    "tree": "fv1 seq_q=6 seq_k=20 tree=-1,0,0,1,2,4",
    "blocks": "fv1 heads_q=2 heads_kv=2 seq_q=64 seq_k=64 blocks=16,16,128,3,0,1",
    "bitmap": "fv1 heads_q=2 seq_q=30 seq_k=37 bitmap=90,3,1 dtype=bf16",
    "sink": "fv1 heads_q=2 seq_q=21 seq_k=21 causal=top-left sink=yes alibi=yes bias=full",
    "shared": "fv1 heads_q=4 heads_kv=2 seq_q=9 seq_k=9 expand=yes do=expanded dlse=yes",
    "scale": "fv1 seq_q=9 seq_k=19 scale=0 softcap=3 do=transposed",
    "forward": "fv1 seq_q=9 seq_k=19 backward=no",
}


def xray(subject, case=CAUSAL, **options):
    case = parse_case(case) if isinstance(case, str) else case
    assert subject.supports.refusal(case) is None
    return measure(subject, materialize(case)[0], **options)


def errors(subject, case=CAUSAL, **options):
    return {(d.output, d.error) for d in differences(xray(subject, case, **options))}


def only(name, change):
    """An edit of the weights of one output, or of all where `name` is empty."""

    def edit(output, weights):
        if not name or output == name:
            change(weights)
        return weights

    return Weighted(edit)


def put(b, h, i, j, value):
    def change(weights):
        weights[b, h, i, j] = value

    return change


@pytest.mark.one_in(3)
@pytest.mark.parametrize("cost", [{}, {"launches": 1}, {"cheap": True}], ids=["one-hot", "bins", "cheap"])
@pytest.mark.parametrize("text", MASKS.values(), ids=MASKS)
def test_an_exact_attention_is_as_declared_on_every_mask(text, cost):
    found = xray(Weighted(), text, **cost)

    assert differences(found) == ()
    assert {view.output for view in found.views} == ({"o"} if "backward=no" in text else {"o", "dv", "dq", "dk"})
    assert all(view.cells > 0 for view in found.views)
    assert max(view.distance for view in found.views) < 0.12


@pytest.mark.parametrize("output", ["o", "dv", "dq", "dk"])
@pytest.mark.parametrize(("error", "value", "key"), [("leaked", 1, 21), ("dropped", 0, 4), ("doubled", 2, 7)])
def test_a_single_wrong_pair_is_named_in_the_output_that_has_it(output, error, value, key):
    found = differences(xray(only(output, put(1, 3, 20, key, value))))

    named = [d for d in found if d.error != "lse-count"]
    assert {d.output for d in found} == ({"o", "lse"} if output == "o" else {output})
    assert [(d.error, d.count, d.index) for d in named] == [(error, 1, (1, 3, 20, key))]
    assert ("future keys" in named[0].message) == (error == "leaked")
    assert "row 20" in named[0].message
    assert f"key {key}" in named[0].message


@pytest.mark.parametrize("output", ["o", "dv", "dq", "dk"])
@pytest.mark.parametrize("cost", [{"launches": 1}, {"cheap": True}], ids=["bins", "cheap"])
def test_a_single_wrong_pair_is_seen_by_every_way_of_reading(output, cost):
    case = parse_case("fv1 heads_q=2 seq_q=90 seq_k=90 causal=top-left dtype=bf16 seed=2")
    for i, j, value in ((60, 80, 1), (60, 30, 0), (60, 30, 2)):
        found = errors(only(output, put(0, 1, i, j, value)), case, **cost)
        assert {each for each, _ in found} - {"lse"} == {output}


def test_bins_are_read_again_pair_by_pair():
    found = differences(xray(only("o", put(0, 0, 50, 70, 1)), "fv1 seq_q=90 seq_k=90 causal=top-left", launches=1))

    assert [d.index for d in found if "pair by pair" in d.message] == [(0, 0, 50, 70)]
    assert any("bins" not in d.message and d.error == "leaked" and d.count == 1 for d in found)


@pytest.mark.parametrize("output", ["o", "dv"])
def test_a_pair_that_changes_places_within_a_bin_is_seen_by_its_sign(output):
    case = parse_case("fv1 seq_q=64 seq_k=64 causal=top-left seed=4")
    axis = "keys" if output == "o" else "rows"
    sign = signs(case, "weights", torch.device("cpu"), axis=axis, shared=True)[0, 0]
    # Bins are four wide. Row 21 sees the first two keys of its bin 20..23; key 22 is seen by the last two rows of that bin.
    left, right = next((a, b) for a in (20, 21) for b in (22, 23) if sign[a] != sign[b])

    def change(weights):
        if output == "o":
            weights[0, 0, 21, left], weights[0, 0, 21, right] = 0, 1
        else:
            weights[0, 0, left, 22], weights[0, 0, right, 22] = 1, 0

    assert errors(only(output, change), case, launches=1) == {(output, "moved")}


def test_a_query_head_that_reads_another_kv_head_is_named():
    found = {(d.output, d.error): d for d in differences(xray(Weighted(heads=lambda h: (0, 1, 1, 1)[h])))}

    assert {output for output, error in found if error == "head-map"} == {"o", "lse", "dv", "dq", "dk"}
    assert "query head (0, 1) reads kv head (0, 1) instead of (0, 0)" in found["o", "head-map"].message
    assert "kv head (0, 0) sums over query head (0, 0) instead of (0, 0), (0, 1)" in found["dv", "head-map"].message


def test_cheap_codes_differ_between_heads():
    assert ("o", "head-map") not in errors(Weighted(heads=lambda h: h % 2), cheap=True)
    assert {output for output, _ in errors(Weighted(heads=lambda h: h % 2), cheap=True)} >= {"o", "dv", "dq", "dk"}


def test_a_wrong_lse_alone_is_blamed_alone():
    lying = Weighted(change=lambda forward: dataclasses.replace(forward, lse=forward.lse + 0.5))

    assert errors(lying) == {("lse", "lse-count")}


def test_an_o_that_is_no_multiple_of_a_weight_is_no_integer():
    wrong = Weighted(change=lambda forward: dataclasses.replace(forward, o=forward.o * 1.4))

    assert ("o", "not-integer") in errors(wrong)


def test_nan_is_no_integer():
    def change(forward):
        forward.o[0, 1, 3, 0] = float("nan")
        return forward

    found = [d for d in differences(xray(Weighted(change=change))) if d.output == "o" and d.error == "not-integer"]

    assert [d.index[:3] for d in found] == [(0, 1, 3)]


def test_padding_keys_and_other_sequences_are_named():
    tail = only("", put(0, 0, 2, slice(6, 9), 1))
    sequence = only("", put(0, 0, 2, 12, 1))
    by_length = differences(xray(tail, "fv1 seq_q=10 seq_k=12 klen=6"))
    by_sequence = differences(xray(sequence, "fv1 seq_q=20 seq_k=20 packed=0,10,20/0,10,20"))

    assert "3 pairs entered though masked (keys past the declared length): row 2 with keys 6..8" in by_length[1].message
    assert "(keys of another sequence)" in by_sequence[1].message


def test_a_subject_without_lse_or_backward_is_read_as_far_as_it_goes():
    bare = only("o", put(0, 0, 9, 3, 0))
    bare.contract = Contract(lse_base=None)
    bare.supports = dataclasses.replace(bare.supports, backward=False)
    found = xray(bare, "fv1 seq_q=12 seq_k=12 backward=no causal=top-left")

    assert [view.output for view in found.views] == ["o"]
    assert any("no LSE" in note for note in found.notes)
    assert any("no backward" in note for note in found.notes)
    assert ("o", "dropped") in {(d.output, d.error) for d in differences(found)}


def test_an_lse_in_base_2_is_read_in_base_2():
    binary = Weighted(change=lambda forward: dataclasses.replace(forward, lse=forward.lse * 1.4426950408889634))
    assert ("lse", "lse-count") in errors(binary)

    binary.contract = Contract(lse_base="2")
    assert errors(binary) == set()


@pytest.mark.parametrize(("o", "lse"), [(0.0, float("inf")), (float("nan"), float("nan")), (0.5, 7.0)])
def test_an_empty_row_holds_what_the_contract_says(o, lse):
    case = "fv1 batch=2 seq_q=5 seq_k=5 klen=0,3 backward=no"

    def change(forward):
        empty = forward.lse == -torch.inf
        return dataclasses.replace(
            forward, o=forward.o.masked_fill(empty.unsqueeze(-1), o), lse=forward.lse.masked_fill(empty, lse)
        )

    subject = Weighted(change=change)
    assert ("lse", "lse-count") in errors(subject, case)

    subject.contract = Contract(empty_row_o=o, empty_row_lse=lse)
    assert errors(subject, case) == set()


class Unwritten(Weighted):
    """Leaves NaN behind the last sequence, which its own backward does not read."""

    def backward(self, problem, forward):
        return super().backward(problem, dataclasses.replace(forward, o=forward.o.nan_to_num()))


@pytest.mark.parametrize(
    "text", ["fv1 heads_q=2 seq_q=20 seq_k=24 packed=0,5,9/0,9,20", "fv1 seq_q=9 seq_k=9 packed=0,0/0,5"]
)
def test_what_lies_behind_the_last_sequence_is_no_question(text):
    case = parse_case(text)

    def change(forward):
        o, lse = forward.o.clone(), forward.lse.clone()
        o[:, :, case.mask.packed.cu_q[-1] :] = torch.nan
        lse[:, :, case.mask.packed.cu_q[-1] :] = torch.nan
        return dataclasses.replace(forward, o=o, lse=lse)

    assert errors(Unwritten(change=change), case) == set()


@pytest.mark.parametrize("text", ["fv1 dropout=0.5", "fv1 seq_q=0", "fv1 batch=0"])
def test_what_cannot_be_counted_is_refused(text):
    with pytest.raises(UsageError, match=r"counting is not possible with (dropout|batch)="):
        measure(Weighted(dropout=True), materialize(parse_case(text))[0])


def test_the_record_tells_what_was_read():
    record = record_of(xray(only("dq", put(0, 0, 9, 3, 0))))
    text = record_text(record)

    assert {r.output: r.cells - r.right for r in record.readings} == {"o": 0, "dv": 0, "dq": 1, "dk": 0}
    assert "dq: 1 pair missing though visible: row 9 with key 3" in text
    assert "o   4,608 pairs" in text
    assert {r.output for r in record.readings if r.unread} == {"dq", "dk"}  # dS of a row with one key is 0


@pytest.mark.parametrize("read", [1e30, -1e30, torch.inf, torch.nan])
def test_what_no_number_of_pairs_makes_is_no_count(read):
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    view = compare("o", (1, 1), read * one, one, one, None, torch.zeros(1, 1, 1, 1, dtype=torch.bool))

    assert bool(view.broken.all())
    assert not bool(view.delta.any())
