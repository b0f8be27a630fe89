"""The repair of a small subject with one planted mistake is the line as it was."""

import contextlib
import sys
import time

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.observe import look
from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter.hooks import interpreting
from flashverify.repair.judges import Judges
from flashverify.repair.search import repairs
from tests.fast_tier import fast_one_in
from tests.repair.loading import loading

TILES = parse_case("fv1 seq_q=18 seq_k=40 dim_qk=16 dim_v=16 dtype=fp32 backward=no")
CAUSAL = parse_case("fv1 seq_q=18 seq_k=21 dim_qk=16 dim_v=16 dtype=fp32 causal=top-left backward=no")
GRADIENTS = parse_case("fv1 seq_q=6 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 causal=top-left")


@pytest.fixture(scope="module", autouse=True)
def _session():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer):
        yield


loaded = pytest.fixture(loading)


def first_repair(subject, case):
    """What is found within a minute of processor time, for which no load of the machine matters."""
    found = tuple(repairs(subject, case, seconds=60, clock=time.process_time))
    return found[0] if found else None


@pytest.mark.parametrize("right", [True, False])
def test_a_repair_with_which_an_access_is_reported_that_was_not_before_is_refused(loaded, monkeypatch, right):
    load = "        values = tl.load(v + at_k, mask=there, other=0.0)"
    line = KERNEL[0][1]
    wrong = loaded("small_kernel.py", (line, line.replace("<=", "<")))
    edited = sys.modules[
        loaded(
            "small_kernel.py", (load, load if right else load.replace(", mask=there, other=0.0", ""))
        ).function.__module__
    ]

    @contextlib.contextmanager
    def applied():
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules[wrong.function.__module__], "kernel", edited.kernel)
            yield

    assert Judges(wrong, CAUSAL, None).all_right(applied) is right


KERNEL = [
    (CAUSAL, "            see = see & (key[None, :] <= row[:, None])", "<=", "<"),
    (TILES, '        acc = acc * decay[:, None] + tl.dot(w, values, input_precision="ieee")', "[:, None]", "[None, :]"),
    (TILES, "    tl.store(lse + head * rows + row, top + tl.log(total), mask=row < rows)", "tl.log", "tl.log2"),
    (TILES, "        see = key[None, :] < keys", "keys", "rows"),
]
PLAIN = [
    "        dk = ds.mT @ q * scale|        dk = ds.mT @ q",
    "        delta = (g * o).sum(-1, keepdim=True)|        delta = (g * g).sum(-1, keepdim=True)",
]


@pytest.mark.parametrize(("case", "line", "right", "wrong"), fast_one_in(2, [pytest.param(*each) for each in KERNEL]))
def test_the_line_of_a_kernel_as_it_was_is_found(loaded, case, line, right, wrong):
    planted = line.replace(right, wrong)

    found = first_repair(loaded("small_kernel.py", (line, planted)), case)

    assert (found.before, found.after) == (planted.strip(), line.strip())
    assert found.failing >= 6


@pytest.mark.parametrize("pair", fast_one_in(2, PLAIN))
def test_the_line_of_a_backward_as_it_was_is_found(loaded, pair):
    line, planted = pair.split("|")

    found = first_repair(loaded("small_backward.py", (line, planted)), GRADIENTS)

    assert found.before == planted.strip()
    assert found.function == "backward"
    assert found.after in (line.strip(), "delta = (o * g).sum(-1, keepdim=True)")


def test_two_mistakes_have_no_repair_of_one_place(loaded):
    subject = loaded("small_backward.py", ("ds.mT @ q * scale", "ds.mT @ q"), ("w.mT @ g", "w.mT @ (g + 1.0)"))

    assert first_repair(subject, GRADIENTS) is None


def test_a_right_subject_has_no_repair(loaded):
    assert look(loaded("small_backward.py"), GRADIENTS).failures == {}
    assert first_repair(loaded("small_backward.py"), GRADIENTS) is None
    assert first_repair(loaded("small_kernel.py"), CAUSAL) is None


def test_without_time_nothing_is_tried(loaded):
    subject = loaded("small_backward.py", ("ds.mT @ q * scale", "ds.mT @ q"))

    assert tuple(repairs(subject, GRADIENTS, seconds=0.0)) == ()


def test_a_subject_is_as_it_was_behind_the_search(loaded):
    subject = loaded("small_backward.py", ("ds.mT @ q * scale", "ds.mT @ q"))
    before = look(subject, GRADIENTS)

    list(repairs(subject, GRADIENTS, seconds=1.0, clock=time.process_time))

    after = look(subject, GRADIENTS)
    assert {name: x.tolist() for name, x in after.outputs.items()} == {
        name: x.tolist() for name, x in before.outputs.items()
    }


def test_what_the_subject_raises_is_raised(loaded):
    subject = loaded("small_backward.py", ("    s = (q @ k.mT) * scale", "    s = (q @ k) * scale"))

    with pytest.raises(RuntimeError):
        list(repairs(subject, GRADIENTS, seconds=1.0))
