"""Interpreted kernels, right ones and planted defects: the masks that they have in effect."""

import pytest

from flashverify import parse_case
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.case.memory.materialize import materialize
from flashverify.checks.counting import check_counting, count_masks
from flashverify.checks.passes.execution import Execution
from flashverify.judge.verdict import Status
from flashverify.mutants import BANK
from flashverify.mutants.bank.diagonal_leak import DIAGONAL_LEAK
from flashverify.mutants.build import build_mutant
from flashverify.subjects import has_gpu, load_subject
from flashverify.xray.difference import differences
from flashverify.xray.measure import measure
from flashverify.xray.picture import draw
from tests.fast_tier import fast_one_in

CLEAN = {
    "bundled": (
        "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=17 seq_k=33 dim_qk=32 dim_v=32 causal=bottom-right klen=5,33 sink=yes",
        "fv1 heads_q=2 seq_q=30 seq_k=40 dim_qk=32 dim_v=32 dtype=bf16 packed=0,10,30/0,15,35 window=4,2 layout=bshd gap=8",
        "fv1 seq_q=33 seq_k=33 dim_qk=32 dim_v=32 blocks=16,16,128,3 bitmap=120,4 bias=full alibi=yes padding=nan",
    ),
    "bundled-decode": (
        "fv1 batch=2 heads_q=2 heads_kv=1 seq_q=3 seq_k=70 dim_qk=32 dim_v=32 klen=70,9 page_size=16 causal=bottom-right backward=no",
        "fv1 seq_q=5 seq_k=40 dim_qk=32 dim_v=32 tree=-1,0,0,1,2 launch=n_splits:3 dtype=bf16 backward=no",
    ),
    "bundled-chunked": ("fv1 seq_q=20 seq_k=50 dim_qk=32 dim_v=32 klen=41 launch=chunks:3 backward=no",),
    "torch-cpu": ("fv1 seq_q=40 seq_k=40 dim_qk=32 dim_v=32 causal=top-left dtype=bf16",),
}
_SQUARE = "fv1 heads_q=4 heads_kv=2 seq_q=40 seq_k=40 dim_qk=32 dim_v=32"
PLANTED = {
    "causal_off_by_one": (f"{_SQUARE} causal=top-left", {"o", "dv", "dq", "dk"}, "leaked", "row i and key i+1"),
    "window_ignored_in_dkdv": (f"{_SQUARE} window=3,0", {"dv", "dk"}, "leaked", "keys outside the window"),
    "bits_ignored_in_dkdv": (f"{_SQUARE} bitmap=128,3", {"dv", "dk"}, "leaked", "keys whose bit is not set"),
    "last_query_of_a_window_missing": (
        f"{_SQUARE} window=17,0 launch=block_m:16,block_n:16",
        {"dv", "dk"},
        "dropped",
        "row 32 with key 15",
    ),
    "window_exclusive_on_the_left": (f"{_SQUARE} window=3,0", {"o", "dv", "dq", "dk"}, "dropped", "row i and key i-3"),
}


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process: each mutant would be compiled anew")
    with toolkit.open("cpu", plain=False, numerics="ieee"):
        yield


@pytest.fixture
def planted(tmp_path, monkeypatch):
    def build(mutant):
        monkeypatch.syspath_prepend(str(tmp_path))
        return load_subject(build_mutant(mutant, tmp_path))

    return build


def problem(text):
    return materialize(parse_case(text))[0]


def execution(text):
    return Execution(problem(text), {}, {}, ())


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in CLEAN.items() for text in texts])
def test_right_kernels_have_the_declared_mask_in_effect(name, text):
    subject = load_subject(name)
    assert subject.supports.refusal(parse_case(text)) is None

    found = measure(subject, problem(text))
    verdicts, examined = count_masks(subject, execution(text))

    assert differences(found) == ()
    assert all(view.exact for view in found.views)
    assert verdicts == []
    assert examined > found.count.declared.numel()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", fast_one_in(3, PLANTED, kept=2))
def test_a_defect_of_the_mask_is_named_in_the_outputs_that_have_it(name, planted):
    text, outputs, error, words = PLANTED[name]
    subject = planted(next(m for m in BANK if m.name == name))

    found = [d for d in differences(measure(subject, problem(text))) if d.output != "lse"]
    verdicts = list(check_counting(subject, execution(text)))

    assert {d.output for d in found} == outputs
    assert {d.error for d in found} == {error}
    assert all(words in d.message for d in found)
    assert {(v.check, v.status) for v in verdicts} == {("counting", Status.FAIL)}
    assert {(v.output, v.error) for v in verdicts} >= {(output, error) for output in outputs}


@pytest.mark.slow
@pytest.mark.thorough
def test_tiles_wider_than_high_leak_on_the_diagonal_and_only_there(planted, tmp_path):
    case = "fv1 seq_q=128 seq_k=128 dim_qk=64 dim_v=64 causal=top-left launch=block_m:{},block_n:{}"
    subject = planted(DIAGONAL_LEAK)
    found = measure(subject, problem(case.format(32, 64)))
    by_error = {(d.output, d.error): d for d in differences(found)}

    assert set(by_error) == {("lse", "lse-count"), *((o, e) for o in ("o", "dq") for e in ("leaked", "doubled"))}
    assert by_error["o", "leaked"].count == 2 * 31 * 32 // 2
    assert by_error["o", "doubled"].count == 2 * 32 * 33 // 2
    assert "(future keys)" in by_error["o", "leaked"].message
    assert "exactly 2 tiles of 32 x 32 on the diagonal" in by_error["o", "leaked"].message
    assert differences(measure(subject, problem(case.format(64, 32)))) == ()

    draw(found, tmp_path / "a.png")
    draw(found, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_case_without_counts_gives_no_verdict():
    assert count_masks(load_subject("bundled"), execution("fv1 dropout=0.25")) == ([], 0)
