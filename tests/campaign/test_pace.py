"""How fast a search compiles, without any process."""

from flashverify.campaign.protocol import Prepare
from flashverify.campaign.supervisor.pace import Pace

KIND, GIVEN = Prepare("s", kind=0), Prepare("s", ("a",))


def searched(processes, *, rate, kernels):
    """Kernels a thousand cases after the free time, the most and the least from the fifth minute on; a task takes fifty seconds."""
    pace, out, free, later, found = Pace(), [], processes, None, []
    for second in range(900):
        judged = rate * second
        for done in [end for end in out if end <= second]:
            out.remove(done)
            free += 1
            pace.ended(0, kernels)
        while free and pace.allows(judged, second):
            pace.handed(KIND)
            out.append(second + 50)
            free -= 1
        later = later or ((judged, pace.compiled) if second >= 120 else None)
        if second >= 300:
            found.append(1000 * (pace.compiled - later[1]) / (judged - later[0]))
    return max(found), min(found)


def test_in_the_free_time_everything_is_handed_out():
    pace = Pace()
    for _ in range(50):
        assert pace.allows(0, 119.9)
        pace.handed(KIND)


def test_what_many_processes_have_counts_before_they_are_done():
    most, least = searched(14, rate=200, kernels=8)
    assert most <= 10
    assert least > 3


def test_a_kind_is_expected_to_ask_for_what_kinds_asked_for_and_a_case_for_what_cases_did():
    pace = Pace()
    for task, compiled in ((KIND, 6), (KIND, 10), (GIVEN, 1)):
        pace.handed(task)
        pace.ended(task.kind, compiled)
    assert pace.allows(1000, 120.0)

    pace.handed(GIVEN)
    pace.handed(KIND)
    assert (pace.compiled, pace.expected) == (17, 9)
    assert not pace.allows(1899, 121.0)
    assert pace.allows(1900, 121.0)

    pace.lost(KIND)
    assert (pace.compiled, pace.expected) == (17, 1)
    assert pace.allows(1100, 121.0)
