"""What failing cases are right without."""

from dataclasses import replace

from flashverify.case.text import parse_case
from flashverify.diagnosis.description import described
from flashverify.diagnosis.description.removals import needed
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain, planted

CASE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=6 dtype=fp32 seed=1 backward=no causal=top-left dropout=0.25 sink=yes offset=1"


def kept(self, problem, drawn):
    """Sequences behind the first one drop nothing."""
    return drawn.where(
        (problem.case.mask.causal is None) | (drawn.new_tensor(range(len(drawn))) < 1)[:, None, None, None],
        drawn.new_ones(()),
    )


def tried(subject, *texts):
    trials = Trials(subject, 300.0)
    for text in texts:
        assert trials.scene(parse_case(text)).failures
    return trials, parse_case(texts[0])


def test_each_thing_without_which_failing_cases_are_right_is_said():
    trials, case = tried(planted(kept=kept), CASE, CASE.replace("seq_k=6", "seq_k=9"))

    assert needed(trials, case) == ("a causal mask", "dropout", "several sequences")


def test_one_case_says_nothing():
    trials, case = tried(planted(kept=kept), CASE)

    assert needed(trials, case) == ()


def test_a_failing_case_that_is_wrong_without_it_denies_it():
    def more(self, problem, drawn):
        return kept(self, problem, drawn) if problem.case.seq_k < 9 else drawn * 0.5

    trials, case = tried(
        planted(kept=more), CASE, CASE.replace("seq_k=6", "seq_k=8"), CASE.replace("seq_k=6", "seq_k=9")
    )

    assert needed(trials, case) == ("dropout",)


def test_things_of_the_storage_and_of_gradients_have_words():
    def forward(self, problem):
        found = Plain.forward(self, problem)
        wrong = problem.case.storage.transposed and problem.case.grad.dlse
        return replace(found, lse=found.lse + wrong)

    text = "fv1 seq_q=5 seq_k=6 dtype=fp32 seed=1 dlse=yes transposed=yes scale=0.5"
    supports = replace(Plain.supports, transposed=True)
    trials, case = tried(planted(forward=forward, supports=supports), text, text.replace("seq_k=6", "seq_k=9"))

    assert needed(trials, case) == ("a gradient through the LSE", "tensors whose channels are not contiguous")


def test_the_description_says_it():
    trials, case = tried(planted(kept=kept), CASE)
    words, _ = described(trials, trials.scenes[case], "o")

    assert "Failing cases are right without a causal mask, and without dropout, and without several sequences." in words
