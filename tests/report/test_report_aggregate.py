import math

import pytest

from flashverify.judge.verdict import Key, Status, Verdict, to_hex
from flashverify.report.aggregate import Aggregate
from flashverify.report.axes import axes_of, bucket_of, bucket_text, position
from flashverify.report.group import GroupKey, percentile
from tests.report.synthetic import failing, passed, result, stats


def of(*results):
    return Aggregate.of(iter(results))


KEY = GroupKey("kernel", "fp16", "o", "end-to-end")


def test_elements_are_added_up_per_subject_dtype_output_and_mode():
    aggregate = of(
        result(stats=(stats("o", 0.1, elements=10, exempt=2), stats("dq", 0.2, mode="conditional", elements=7))),
        result("fv1 dtype=bf16", stats=(stats("o", 0.1, elements=5),)),
        result("fv1 seq_q=2", stats=(stats("o", 0.3, elements=30, uninformative=4),)),
        result(subject="other", stats=(stats("o", 0.1, elements=100),)),
    )
    assert set(aggregate.groups) == {
        KEY,
        GroupKey("kernel", "fp16", "dq", "conditional"),
        GroupKey("kernel", "bf16", "o", "end-to-end"),
        GroupKey("other", "fp16", "o", "end-to-end"),
    }
    group = aggregate.groups[KEY]
    assert (group.cases, group.elements, group.exempt, group.uninformative) == (2, 40, 2, 4)


def test_the_precision_of_fp32_products_is_a_dtype_of_its_own():
    assert axes_of("fv1 dtype=fp32 precision=tf32").dtype == "fp32 tf32"


def test_the_worst_ratio_keeps_its_case_and_index():
    group = of(
        result("fv1 seq_q=1"), result("fv1 seq_q=9", stats=(stats("o", 0.75, (0, 0, 8, 3)),)), result("fv1 seq_q=3")
    ).groups[KEY]
    assert (group.worst.ratio, group.worst.case, group.worst.index) == (0.75, "fv1 seq_q=9", (0, 0, 8, 3))


def test_nan_is_worse_than_infinity():
    group = of(
        *(result(f"fv1 seq_q={n}", stats=(stats("o", r),)) for n, r in enumerate((math.inf, math.nan, 2.0), 1))
    ).groups[KEY]
    assert math.isnan(group.worst.ratio)
    assert math.isnan(group.percentiles[-1])


def test_a_stored_ratio_that_is_no_number_counts_as_nan():
    broken = stats("o", 0.1).__class__(output="o", mode="end-to-end", elements=1, worst="<b>", index=(0, 0, 0, 0))
    assert math.isnan(of(result(stats=(broken,))).worst.ratio)


def test_percentiles_are_nearest_ranks():
    group = of(*(result(f"fv1 seq_q={n}", stats=(stats("o", n / 1000),)) for n in range(1, 1001))).groups[KEY]
    assert group.percentiles == (0.5, 0.9, 0.99, 0.999)
    assert percentile([], 50) is None
    assert percentile([7.0], 99.9) == 7.0


def test_a_case_without_judged_elements_has_no_ratio():
    group = of(result(stats=(stats("o", 0.0, (), elements=10, exempt=10),)), result("fv1 seq_q=2")).groups[KEY]
    assert (group.cases, list(group.ratios)) == (2, [0.25])


@pytest.mark.parametrize(("length", "bucket"), [(0, -1), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (128, 7), (129, 8)])
def test_buckets_end_at_powers_of_two(length, bucket):
    assert bucket_of(length) == bucket


def test_buckets_are_named_by_their_lengths():
    assert [bucket_text(b) for b in (-1, 0, 1, 2, 8)] == ["0", "1", "2", "3–4", "129–256"]


MIXED = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=9 seq_k=9 regime=ties,zeros,overflow"


@pytest.mark.parametrize(
    ("output", "index", "regime"),
    [
        ("o", (0, 1, 0, 0), "ties"),
        ("lse", (0, 2, 0), "zeros"),
        ("dq", (1, 1, 0, 0), "overflow"),
        ("dk", (0, 1, 0, 0), "zeros"),
        ("dv", (1, 1, 0, 0), "ties"),
        ("dsink", (0,), "mixed"),
        ("o", (), "mixed"),
        ("o", (2, 0, 0, 0), "mixed"),
        ("o", (0, 4, 0, 0), "mixed"),
        ("dk", (0, -1, 0, 0), "mixed"),
        ("output of another version", (0, 1, 0, 0), "mixed"),
    ],
)
def test_an_element_of_a_mixed_case_has_the_regime_of_its_head(output, index, regime):
    assert regime == axes_of(MIXED).regime_of(output, index)
    assert axes_of(MIXED.replace("ties,zeros,overflow", "ties")).regime_of(output, index) == "ties"


def test_the_heads_of_an_expanded_k_have_the_regime_of_their_batch_entry():
    axes = axes_of(MIXED + " expand=yes")
    assert tuple(axes.regime_of("dk", (entry, 1, 0, 0)) for entry in (0, 1)) == ("ties", "zeros")


def test_the_worst_ratio_of_a_mixed_case_counts_for_the_regime_of_its_head():
    group = of(result(MIXED, stats=(stats("o", 0.5, (1, 0, 0, 0)),))).groups[KEY]
    assert group.regimes == {"overflow": 0.5}


def test_worst_by_length_regime_mask_and_position():
    aggregate = of(
        result(
            "fv1 seq_q=100 seq_k=20 regime=ties", stats=(stats("o", 0.5, (0, 0, 99, 0)), stats("dk", 0.6, (0, 0, 0, 1)))
        ),
        result("fv1 seq_q=20 seq_k=128 regime=ties causal=top-left", stats=(stats("o", 0.25, (0, 0, 0, 0)),)),
        result("fv1 seq_q=2 window=1,0 causal=top-left", stats=(stats("o", 0.75, (0, 0, 1, 0)),)),
    )
    group = aggregate.groups[KEY]
    assert group.lengths == {7: 0.5, 1: 0.75}
    assert group.regimes == {"ties": 0.5, "normal": 0.75}
    assert group.masks == {"none": 0.5, "causal top-left": 0.25, "causal top-left + window": 0.75}
    assert group.cells == {(7, 15): 0.5, (7, 0): 0.25, (1, 8): 0.75}
    assert aggregate.groups[GroupKey("kernel", "fp16", "dk", "end-to-end")].cells == {(7, 0): 0.6}


def test_a_position_outside_the_case_is_none():
    axes = axes_of("fv1 seq_q=4 seq_k=8")
    assert [position("o", index, axes) for index in ((), (0, 0), (0, 0, 4, 0), (0, 0, -1, 0))] == [None] * 4
    assert (position("lse", (0, 0, 2), axes), position("dv", (0, 0, 7, 0), axes)) == (8, 14)


def test_outcomes_coverage_reasons_and_remarks_are_counted():
    refused = result(verdicts=(Verdict("supports", Status.UNSUPPORTED, message="no tree"),), stats=(), evidence="")
    error = result(verdicts=(Verdict("harness", Status.ERROR, error="self-check", message="E64 too large"),), stats=())
    thin = result(stats=(stats("o", 0.1, elements=100, exempt=2),), warnings=("slow",))
    aggregate = of(result(), failing(), refused, refused, error, thin, result(verdicts=()))
    assert aggregate.outcomes == {Status.PASS: 2, Status.FAIL: 1, Status.UNSUPPORTED: 2, Status.ERROR: 2}
    assert (aggregate.judged, aggregate.covering) == (3, 2)
    assert aggregate.unsupported == {"no tree": 2}
    assert aggregate.errors == {"E64 too large": 1, "no verdict": 1}
    assert aggregate.warnings == {"slow": 1}
    assert aggregate.evidence == {"interpreter": 5}


def test_a_check_counts_once_per_case_by_its_worst_answer():
    two = tuple(Verdict("accuracy", Status.FAIL, output, "bound") for output in ("dk", "dq"))
    aggregate = of(result(verdicts=(*two, *passed("memory"))), result(verdicts=passed("accuracy", "memory")))
    totals = aggregate.subjects["kernel"]
    assert totals.checks == {("accuracy", Status.FAIL): 1, ("accuracy", Status.PASS): 1, ("memory", Status.PASS): 2}
    assert {key: bucket.count for key, bucket in aggregate.failures.items()} == {
        Key("kernel", "accuracy", "bound", "dk", "fp16"): 1,
        Key("kernel", "accuracy", "bound", "dq", "fp16"): 1,
    }


def test_a_line_that_is_no_case_is_still_counted():
    aggregate = of(result("<script>alert(1)</script>"))
    assert next(iter(aggregate.groups)).dtype == "unreadable case"
    assert aggregate.judged == 1


def test_the_order_of_results_does_not_change_the_numbers():
    results = [result(f"fv1 seq_q={n}", stats=(stats("o", n % 7 / 10 + 0.01),)) for n in range(1, 60)]
    one, two = of(*results), of(*reversed(results))
    assert one.groups[KEY].percentiles == two.groups[KEY].percentiles
    assert one.groups[KEY].lengths == two.groups[KEY].lengths


def test_distinct_texts_are_capped():
    aggregate = of(*(result(warnings=(f"w{n}",)) for n in range(2500)))
    assert len(aggregate.warnings) == 2001
    assert aggregate.warnings.total() == 2500


def test_stored_hex_survives():
    assert of(result(stats=(stats("o", 1 / 3),))).worst.ratio == float.fromhex(to_hex(1 / 3))
