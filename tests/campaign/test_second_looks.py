"""A finding of which little was said is diagnosed once more, in time that nothing else needs, and keeps what says more."""

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.diagnoses import says_little, says_more
from flashverify.campaign.commands.status_line import StatusLine
from flashverify.campaign.protocol import Attribute, Mend, Minimal, Reconsider, Reconsidered
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.events import FindingReconsidered
from flashverify.campaign.supervisor.explainer import Explainer
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.supervisor.second_looks import SecondLooks
from flashverify.campaign.worker.reconsider import reconsider
from flashverify.case.text import format_case
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord
from flashverify.judge.verdict import CaseResult, Key, OutputStats
from tests.campaign.company_seen import OUT, TOUCHED, book, failing

LOOK = Diagnosis(sentence="No known wrong semantics explains it.")
READ = Diagnosis(sentence="O misses a key.", evidence="Read.")
NAMED, ONE_OF = Diagnosis("a", "A."), Diagnosis("a", "A or b.", also=("b", "c"))
UNWRITTEN = Diagnosis("not-written", "Elements of o are never written.")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(
    ("found", "little"), [(LOOK, True), (ONE_OF, True), (READ, False), (NAMED, False), (UNWRITTEN, False), (None, True)]
)
def test_a_description_and_a_choice_of_names_say_little(found, little):
    assert says_little(found) is little


@pytest.mark.parametrize(
    ("found", "than", "more"),
    [
        (LOOK, None, True),
        (READ, LOOK, True),
        (NAMED, LOOK, True),
        (ONE_OF, LOOK, True),
        (NAMED, ONE_OF, True),
        (msgspec.structs.replace(ONE_OF, also=("b",)), ONE_OF, True),
        (ONE_OF, ONE_OF, False),
        (READ, ONE_OF, False),
        (LOOK, LOOK, False),
        (UNWRITTEN, LOOK, False),
        (NAMED, READ, False),
    ],
)
def test_a_name_or_a_reading_says_more_than_a_description_and_fewer_names_more_than_several(found, than, more):
    assert says_more(found, than) is more


@pytest.mark.parametrize(
    ("now", "spent", "active", "left"),
    [(30.0, 10.0, False, 25.0), (30.0, 20.0, False, 20.0), (30.0, 26.0, False, 0.0), (20.0, 10.0, False, 0.0), (30.0, 10.0, True, 0.0), (45.0, 10.0, False, 21.0), (55.0, 10.0, False, 0.0)],
)  # fmt: skip
def test_it_has_what_is_left_of_the_share_in_the_later_part_of_a_campaign(now, spent, active, left):
    clock = Clock()
    time = Explaining(Budget(60.0, 120.0, clock=clock), 2, share=1 / 3, least=None, clock=clock)
    time.begin(0, spent)
    clock.now = spent
    time.end(0)
    clock.now = now
    if active:
        time.begin(1, 5.0)

    assert time.spare(25.0, 15.0) == pytest.approx(left)


def looks(diagnosis, key=OUT, failed=3):
    causes, _ = book(Company(), key, diagnosis=diagnosis, failed=failed)
    return SecondLooks(causes, Explaining(Budget(None, 10.0), 2, share=0.9, least=None))


def test_a_finding_is_looked_at_again_once():
    again = looks(LOOK)
    task = again.next(["k"])

    assert (task.cause.key, task.limit) == (OUT, 25.0)
    again.began(task.cause.key)
    assert again.next(["k"]) is None


@pytest.mark.parametrize(
    "given",
    [{"diagnosis": NAMED}, {"diagnosis": LOOK, "key": TOUCHED}, {"diagnosis": LOOK, "failed": 0}],
)
def test_what_is_said_what_is_not_about_values_and_what_does_not_fail_again_is_left(given):
    assert looks(**given).next(["k"]) is None


class Session:
    def __init__(self, says):
        self.toolkit, self.says, self.told, self.asked = self, says, [], {}

    def subject(self, spec):
        return spec

    def emit(self, event):
        if isinstance(event, Reconsidered):
            self.told.append(event.diagnosis)

    def diagnose(self, subject, case, verdict, **asked):
        self.asked = asked | {"case": format_case(case)}
        if self.says is None:
            raise RuntimeError("the subject raised")
        return self.says


@pytest.mark.parametrize("says", [NAMED, LOOK, None])
def test_a_worker_tells_what_says_more_and_works_longer_than_usual(says, capsys):
    finding = FindingRecord(OUT, "fv1", "fv1 seq_q=8", failing(OUT), "cpu", "k", diagnosis=LOOK)
    session = Session(says)
    reconsider(session, Reconsider(msgspec.structs.replace(finding, confirmation=Confirmation(3, 3)), 20.0))

    assert session.told == [NAMED] * (says is NAMED)
    assert session.asked["work"] == session.asked["seconds"] == 18.0
    assert (session.asked["case"], format_case(session.asked["first"])) == ("fv1", "fv1 seq_q=8")
    assert session.asked["afresh"]() is True, "fresh processes showed it"
    assert ("the subject raised" in capsys.readouterr().err) is (says is None)


@pytest.fixture
def campaign(tmp_path):
    """A finding that was minimised and described."""
    config = CampaignConfig(kind="fuzz", subjects=("k",), out=tmp_path / "run", device="cpu", workers=2)
    ledger, events = Ledger(config), []
    time = Explaining(Budget(None, 10.0), 2, share=0.9, least=None)
    explainer = Explainer(config, ledger, time, events.append, lambda: 0.0)
    stats = (OutputStats("o", "end-to-end", 4),)
    ledger.keep(CaseResult("fv1", "k", "cpu", (failing(OUT),), stats), "k", 0.0)
    explainer.told(0, Minimal(OUT, "fv1", failing(OUT), Confirmation(3, 3), LOOK))
    explainer._folding.unprofiled.clear()
    yield ledger, explainer, events
    ledger.store.close()


def mended(explainer):
    """Nothing was found that repairs the finding."""
    assert isinstance(explainer.next(searching=True), Mend)
    explainer.began(0, explainer.next(searching=True))
    explainer.ended(0)


def test_nothing_is_looked_at_again_while_something_waits_or_when_no_case_is_judged(campaign):
    ledger, explainer, _ = campaign
    mended(explainer)
    assert isinstance(explainer.next(searching=True), Reconsider)
    assert explainer.next(searching=False) is None
    ledger.keep(CaseResult("fv1", "k", "cpu", (failing(TOUCHED),)), "k", 1.0)
    assert isinstance(explainer.next(searching=True), Attribute)


def test_a_finding_of_which_no_more_is_said_is_not_looked_at_a_third_time(campaign):
    _, explainer, _ = campaign
    mended(explainer)
    explainer.began(0, explainer.next(searching=True))
    explainer.ended(0)

    assert explainer.next(searching=True) is None


def test_what_says_more_is_stored_and_told(campaign, capsys):
    ledger, explainer, events = campaign
    mended(explainer)
    explainer.began(0, explainer.next(searching=True))
    explainer.told(0, Reconsidered(OUT, NAMED))
    explainer.ended(0)

    assert ledger.tally.records[OUT].diagnosis == NAMED
    assert open_run(ledger.store.path).findings[0].record.diagnosis == NAMED
    assert isinstance(events[-1], FindingReconsidered)
    assert explainer.next(searching=True) is None
    with StatusLine() as status:
        status(events[-1])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("looked at again: k accuracy bound o fp16")
    assert "A." in lines[1]


def test_a_name_that_another_finding_has_folds_it_and_one_that_was_folded_says_nothing(campaign):
    ledger, explainer, _ = campaign
    other = Key("k", "accuracy", "bound", "dk", "fp16")
    ledger.keep(CaseResult("fv1 seq_q=4", "k", "cpu", (failing(other),)), "k", 1.0)
    explainer.told(0, Minimal(other, "fv1 seq_q=4", failing(other), Confirmation(3, 3), NAMED))
    explainer.told(0, Reconsidered(OUT, NAMED))
    assert list(ledger.tally.records) == [other]
    explainer.told(0, Reconsidered(OUT, READ))
    assert list(ledger.tally.records) == [other]
