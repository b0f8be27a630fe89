"""Which wrong semantics explains a failure, where and on which cases; in words where none does."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec import structs

from flashverify.diagnosis.arbitration import Hearing
from flashverify.diagnosis.attempting import attempted
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.concerning import about, left_alone
from flashverify.diagnosis.description import as_if_on_related_cases, described
from flashverify.diagnosis.each_output import apart
from flashverify.diagnosis.naming import Named, named, named_at_places
from flashverify.diagnosis.narrowing import OTHER_OUTPUTS, Narrowed, kernel_alone
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.opening import first_scene, unwritten, unwritten_read, watched_always
from flashverify.diagnosis.padding_experiment import padding_reaches
from flashverify.diagnosis.place import first_line, place_of
from flashverify.diagnosis.plainly_wrong import plainly_wrong
from flashverify.diagnosis.precision import precision_words
from flashverify.diagnosis.readings import Readings
from flashverify.diagnosis.saying import apart_diagnosis, claim_words, named_diagnosis, ruled_diagnosis, sentence_of
from flashverify.diagnosis.siblings import sibling
from flashverify.diagnosis.starting import (
    and_the_first,
    clearest,
    smaller_with_a_launch,
    with_usual_settings,
    with_zeros,
)
from flashverify.diagnosis.state.answering import of_state
from flashverify.diagnosis.state.pairs import fresh_number
from flashverify.diagnosis.state.suspecting import of_a_later_call
from flashverify.diagnosis.state.telling import OF_A_FIRST_CALL, gone, told
from flashverify.diagnosis.trials import Trials, work
from flashverify.diagnosis.unwritten_places import unwritten_places
from flashverify.judge.record import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case
    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.concerning import Search
    from flashverify.diagnosis.observation import Scene
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["PATIENCE", "SECONDS", "diagnose"]

SECONDS, PATIENCE = 10.0, 4.0
"""Of work, and how many times as long they may take on a busy machine."""
_PRECISION = 0.3
"""Share of the time for a defect of precision."""
_READINGS = 0.4
"""Share of the time that is kept for reading what the kernel computes where nothing is named."""
_READ = 0.87
"""Share at whose end nothing more is read: the rest is for what the failure looks like."""
_NAMED = 0.5
"""Share at whose end no further name is looked for where gradients are wrong by more than rounding, of which readings say more."""
_HELD = 0.98
"""Share at whose end wrong elements are no longer held against every semantics."""
_APART = 0.4
"""Share of the time that is left for names of single outputs of a kernel, where none stands for all of them."""
_NOTHING_ELSE = 3.0
"""Times the usual share that questions about earlier calls get where the case is right by itself, so that nothing else is asked."""
_FATAL = ("crash", "hang", "exception")
"""Checks whose failures leave no outputs to explain."""
_NONE = "No known wrong semantics explains it."
_UNDESCRIBED: tuple[str, tuple[str, ...]] = ("What it depends on was not found out.", ())


def diagnose(
    subject: Subject,
    case: Case,
    verdict: Verdict,
    *,
    first: Case | None = None,
    seconds: float = SECONDS,
    clock: Clock | None = None,
    afresh: Callable[[], bool | None] = lambda: None,
) -> Diagnosis:
    """Names the wrong semantics that explains every output of `subject` on `case`, and says where and when it shows.

    A semantics is named only if the subject's outputs lie within the bounds that hold under it on `case` and on further cases, on
    some of which it accounts for an error that is large beside those bounds, and no case tried contradicts it. If it shows on some
    cases or at some places only, the conditions are learned from cases that differ in one respect, and named only after they have
    predicted fresh cases, failing ones and right ones.

    Args:
        subject: the kernel under test.
        case: where it fails, the smaller the better.
        verdict: the failing verdict.
        first: another case that fails likewise, such as the one from which `case` was made; it is tried where `case` gives no name.
        seconds: of work, after which no further case is run.
        clock: that counts them; None for one by which they take `PATIENCE` times as long at most, however busy the machine is.
        afresh: whether a process that computed nothing before fails in the same way on `case`; None where that is not known. It is asked at most
            once, before something is said to be kept from earlier calls.

    Returns:
        The diagnosis; its `name` is empty where no semantics fits or too few cases could be tried. Its sentence then describes the failure.

    Raises:
        Exception: whatever the subject raises on `case`.
    """
    if verdict.check in _FATAL:
        return Diagnosis()
    clock = clock or Clock.ending(seconds, PATIENCE * seconds)
    trials, end, number = Trials(subject, seconds, kept=_READINGS, clock=clock), clock.end(seconds), fresh_number()
    if verdict.check == "reuse":
        return of_state(subject, case, verdict, first, number, end)
    found = first_scene(subject, case, verdict)

    asked = cache(afresh if verdict.check in OF_A_FIRST_CALL else lambda: None)
    share = seconds if found is not None else _NOTHING_ELSE * seconds
    ask_for_state = partial(of_a_later_call, subject, case, share, clock, first, until=end, afresh=asked)
    of_a_later_one = cache(partial(attempted, "asking for state", ask_for_state, None))

    def unless_kept(found: Diagnosis) -> Diagnosis:
        """What is found, unless something is kept from earlier calls: what a fresh process shows too is no work of these."""
        left = attempted(
            "asking what is left alone", lambda: left_alone(trials.scenes.values(), found.name), found.beside
        )
        found = structs.replace(found, beside=tuple(dict.fromkeys((*found.beside, *left))))
        return found if asked() is True else of_a_later_one() or found

    if found is None:
        if gone(subject, case, verdict):
            return of_state(subject, case, verdict, None, number, end)
        return of_a_later_one() or told(subject, case, verdict)
    scene, failing = found
    place = place_of(scene, failing, verdict.output)
    if scene.case.launch != case.launch:
        place = f"with the launch {', '.join(f'{name} = {value}' for name, value in scene.case.launch)}: {place}"
    if line := first_line(subject, scene, verdict):
        place = f"{place}; {line}"
    if sentence := unwritten(scene, failing):
        name = next(iter(failing))
        which = attempted("asking what is written", lambda: unwritten_places(trials, scene, name), "")
        return Diagnosis("not-written", f"{sentence[:-1]}: {which}." if which else sentence, place=place)
    starts, remark = [], ""
    if work(scene.case) <= LARGEST:
        plain = with_zeros(trials, scene)
        if plain is None and (reached := padding_reaches(subject, scene.case)):
            return unless_kept(Diagnosis(reached[0], sentence_of(reached[1]), place=place))
        start, remark = clearest(trials, plain or scene)
        starts = [start]
    larger = None if first == case else first
    starts = starts or list(and_the_first(trials, [], larger))
    if not starts:
        return Diagnosis(sentence="The case is too large for hypotheses.", place=place)
    for more in (smaller_with_a_launch, with_usual_settings):
        if (told_by := more(trials, starts[0])) is not None:
            starts.insert(0, told_by)
    for start in starts:
        trials.keep(start)
    describe = partial(described, trials, starts[0], verdict.output)
    describing = partial(attempted, "describing the failure", describe, _UNDESCRIBED)
    said, shown = unwritten_read(trials, starts[0])
    if said:
        sentence = sentence_of(said)
        words, conditions = describing()
        evidence = f"The loads are watched; {shown} further cases show the same one."
        return unless_kept(Diagnosis("", f"{sentence} {words}", (), place, conditions, evidence, reading=sentence))
    cases = dict.fromkeys((scene.case, starts[0].case) if not remark else (scene.case,))
    rounding = partial(_rounding, subject, list(cases), verdict, end, seconds)
    whole, searches = about(named, scene, verdict.output), [about(named_at_places, scene, verdict.output)]
    searches.insert(0, whole)
    precise, hearing = None, Hearing(trials, verdict.output)
    if remark:  # what rounds wrongly is right at no place, and looks like no other mistake
        precise, searches = rounding(), [whole]
    large = False
    for search in searches:
        if precise is not None and precise.evidence:
            break
        for start in and_the_first(trials, starts, larger):
            answer = search(trials, start) if trials.left() else None
            if answer is not None and (start is starts[0] or answer.explains(starts[0])):
                ruling = hearing.ruling(start, answer)
                if ruling.answer is not None:
                    usual = ruling._replace(answer=_in_the_usual_part(trials, start, ruling.answer))
                    return unless_kept(ruled_diagnosis(usual, start, place, remark))
        if (answered := _by_itself(search, trials, starts[0], verdict.output)) is not None:
            return unless_kept(named_diagnosis(*answered, place, remark))
        if search is whole and (each := apart(trials, starts[0], verdict.output, _APART)) is not None:
            return unless_kept(apart_diagnosis(each, place, remark))
        if not large and plainly_wrong(trials, starts[0]):
            large = True
            trials.hold(_NAMED)
        if search is whole and not remark and not large:
            precise = rounding()
    if precise is not None and precise.evidence:
        return unless_kept(structs.replace(precise, sentence=precise.sentence + remark, place=place))
    if (kept := of_a_later_one()) is not None:
        return kept
    trials.release(_READ)
    read = Readings()
    asked_about = and_the_first(trials, starts, larger) if not remark else ()
    for start in asked_about:  # the smallest case may have only one of what is taken for another
        again = hearing.readings(start)
        read = again if again.tested or not read.sentences else read
        if read.tested:
            break
    trials.release()
    asking = partial(as_if_on_related_cases, trials, starts[0], verdict.output, _HELD)
    sure = bool(remark) or precise is not None or read.both
    held = "" if sure else attempted("asking what wrong elements hold", asking, "")
    words, conditions = describing()
    watched = "" if read.tested else watched_always(trials)
    none = sentence_of(watched or held) if watched or held else _NONE
    said, form, evidence = (none, "", "") if precise is None else (precise.sentence, precise.form, "")
    if read.sentences and not watched:
        in_effect = " ".join(f"{sentence}." for sentence in read.sentences)
        beside = f" {sentence_of(held)}" if held and not read.both else ""
        said = f"{in_effect}{beside}" if read.tested else f"{said} {in_effect}"
        evidence = sentence_of(read.evidence)
    return Diagnosis(
        sentence=f"{said} {words}{remark}",
        place=place,
        conditions=conditions,
        evidence=evidence,
        form=form,
        reading=f"{read.sentences[0]}." if read.tested else "",
    )


def _rounding(subject: Subject, cases: list[Case], verdict: Verdict, end: End, seconds: float) -> Diagnosis | None:
    """What is rounded that should not be, in words; None where the errors do not look so.

    In fp32, the second of two cases, no declared rounding hides what fails in every dtype.
    """
    found: Diagnosis | None = None
    for number, case in enumerate(cases if not end.over else ()):
        share = _PRECISION * seconds / (1 + number)
        said = precision_words(subject, case, verdict, end.within(share))
        if said is not None and said.evidence:
            return said
        found = found or said
    return found


def _by_itself(search: Search, trials: Trials, start: Scene, output: str) -> tuple[Named, Scene] | None:
    """What explains the failures of one kernel where others fail in another way, and the run that shows it."""
    kernel = kernel_alone(trials, start, output)
    if kernel is None or not trials.left():
        return None
    alone = Narrowed(trials, kernel)
    scene = alone.of_kernel(start)
    answer = search(alone, scene)
    if answer is None:
        return None
    answer.evidence += OTHER_OUTPUTS
    return answer, scene


def _in_the_usual_part(trials: Trials, scene: Scene, answer: Named) -> Named:
    """The answer, about ALiBi or a causal mask where the same mistake is made there: parts that more kernels have."""
    found = sibling(trials, scene.case, answer.claims[0]) if trials.left() else None
    if found is None:
        return answer
    evidence = f"{answer.evidence}; in the failing case, which has not that part, {claim_words(answer.claims[0])}"
    return Named([found, *answer.claims[1:]], answer.conditions, evidence)
