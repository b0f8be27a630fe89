"""Every edit of a function in one copy of it: which of them are one, and that the copy with an edit does what the edited function does."""

import ast
import builtins
import contextlib
import math

import pytest

from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter.hooks import interpreting
from flashverify.interpreter.modes import kernels_so_far, line_by_line
from flashverify.repair.candidates import sites
from flashverify.repair.copies import probed
from flashverify.repair.exchange import edited, in_place
from flashverify.repair.functions import executed
from flashverify.repair.probing import Probe, _is_safe, watching
from tests.repair import probed_functions


@pytest.fixture(scope="module")
def session():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer) as opened:
        yield opened


def watched(run, name):
    """The function, its candidates, a probe that saw them, and what runs in its place."""
    run()
    with line_by_line():
        ran = next(each for each in executed(run, kernels_so_far) if each.name == name)
    every = [each for site in sites(ran) for each in site.candidates]
    probe = Probe(every)
    schema = probed(ran, probe)
    with in_place(ran, schema), watching(probe), line_by_line():
        run()
    return ran, every, probe, schema


@pytest.fixture(scope="module")
def of_plain():
    return watched(probed_functions.run_plain, "plain")


@pytest.fixture(scope="module")
def of_kernel(session):
    return watched(probed_functions.run_walking, "walking")


def replaced(candidate):
    text, edit = candidate.ran.source.text, candidate.edit
    return text[edit.start : edit.end], edit.text


def before(candidate):
    return candidate.ran.source.text[: candidate.edit.start]


def outcome(run, block):
    try:
        with block:
            found = run()
    except Exception as error:
        return type(error) is not SyntaxError and "raised"
    return [None if math.isnan(x) else x for x in found]


def instead(ran, probe, schema, candidate):
    block = contextlib.ExitStack()
    block.enter_context(in_place(ran, schema))
    block.enter_context(watching(probe))
    block.enter_context(probe.instead(candidate))
    return block


def really(ran, candidate):
    return in_place(ran, edited(ran, candidate.edit))


def differing(run, found, every_nth=1):
    ran, every, probe, schema = found
    right, differ, done = run(), [], set()
    held = [each for each in every if probe.has(each)]
    for each in held[::every_nth]:
        one, other = outcome(run, instead(ran, probe, schema, each)), outcome(run, really(ran, each))
        done.add(isinstance(each.node, ast.stmt))
        if one != other:
            differ.append((each.node.lineno, *replaced(each)))
    assert len(held) > len(every) * 0.8
    assert done == {True, False}
    assert run() == right
    return differ


def test_a_copy_with_an_edit_does_what_the_edited_function_does(of_plain):
    assert differing(probed_functions.run_plain, of_plain) == []


def test_a_copy_of_a_kernel_does_so_too_where_its_programs_part(of_kernel):
    assert differing(probed_functions.run_walking, of_kernel, 3) == []


def test_edits_of_one_class_do_the_same(of_plain):
    ran, _, probe, _ = of_plain
    classes, _ = probe.distinct()
    run = probed_functions.run_plain

    assert any(len(each) > 1 for each in classes.values())
    for first, members in classes.items():
        assert members[0] is first
        assert [each.cost for each in members] == sorted(each.cost for each in members)
        for other in members[1:4]:
            assert outcome(run, really(ran, first)) == outcome(run, really(ran, other))


@pytest.mark.parametrize("which", ["of_plain", "of_kernel"])
def test_what_is_dropped_changes_nothing_or_raises(which, request):
    ran, every, probe, _ = request.getfixturevalue(which)
    run = {"of_plain": probed_functions.run_plain, "of_kernel": probed_functions.run_walking}[which]
    classes, asked = probe.distinct()
    right = run()
    kept = {each for members in classes.values() for each in members}
    dropped = [each for each in every if each in asked and each not in kept]

    assert dropped
    wrong = [each for each in dropped if outcome(run, really(ran, each)) not in (right, "raised")]
    assert [(each.node.lineno, *replaced(each)) for each in wrong] == []


def test_an_edit_that_changes_a_value_is_kept(of_plain):
    _, every, probe, _ = of_plain
    classes, asked = probe.distinct()
    kept = {each for members in classes.values() for each in members}
    wanted = [("<", "<="), ("0.5", "1.0"), ("x > step", "step > x")]
    for each in every:
        if each in asked and replaced(each) in wanted:
            changed = each in kept
            assert changed == (replaced(each) == ("<", "<=")), replaced(each)


def test_programs_that_part_part_in_the_copy_too(session, of_kernel):
    """An edit in a loop may read a name that the loop does not read without it."""
    ran, every, probe, schema = of_kernel
    classes, _ = probe.distinct()
    kept = {each for members in classes.values() for each in members}
    (edit,) = (x for x in every if replaced(x) == ("length", "short") and before(x).endswith("(at < "))

    given_up = session.fallbacks.copy()
    outcome(probed_functions.run_walking, instead(ran, probe, schema, edit))

    assert edit in kept
    assert session.fallbacks == given_up


def test_calls_that_may_do_more_than_compute_are_not_computed_once_more(of_kernel):
    _, every, probe, _ = of_kernel
    stores = [each for each in every if "tl.store" in each.ran.source.of(each.node) and isinstance(each.node, ast.Call)]

    assert stores
    assert not any(probe.has(each) for each in stores)


def test_targets_are_left_to_the_edited_function(of_plain):
    _, every, probe, _ = of_plain
    targets = [each for each in every if isinstance(getattr(each.node, "ctx", None), ast.Store)]

    assert targets
    assert not any(probe.has(each) for each in targets)


def test_nothing_is_watched_behind_the_block():
    assert not [name for name in vars(builtins) if "flashverify" in name]


@pytest.mark.parametrize("text", ["seen.add(n)", "torch.load(path)", "queue.join()"])
def test_calls_that_may_do_more_outside_of_kernels_are_computed_in_kernels_alone(text):
    tree = ast.parse(text, mode="eval").body

    assert [_is_safe(tree, in_kernel=each) for each in (True, False)] == [True, False]
