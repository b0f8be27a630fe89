import json
import re
from xml.etree import ElementTree

from flashverify.judge.record import Confirmation, Diagnosis, Folded, Repair, Summary
from flashverify.judge.verdict import Key, Status, Verdict
from flashverify.judge.wrong_map import WrongMap
from flashverify.report import write_junit, write_report
from tests.report.page import Page
from tests.report.synthetic import failing, finding, header, result, stats, write_run

HOSTILE = "\"'><script>alert(1)</script><img src=http://evil/x onerror=alert(2)>|`**@all** [x](javascript:y)\x1b[31m\u202e\x00"

WILD_MAP = WrongMap(HOSTILE, HOSTILE, 10**9, -3, HOSTILE, 10**9, 0, ("0" * 9000, HOSTILE, "") * 40)


def hostile_run(path):
    verdict = Verdict(
        HOSTILE, Status.FAIL, HOSTILE, HOSTILE, HOSTILE, "zz" + HOSTILE, (1, 2, 3), HOSTILE, HOSTILE + "\n" + HOSTILE
    )
    bad = result(
        HOSTILE,
        HOSTILE,
        evidence=HOSTILE,
        verdicts=(verdict,),
        warnings=(HOSTILE,),
        stats=(stats(HOSTILE, 5.0, mode=HOSTILE),),
    )
    refused = result(HOSTILE, HOSTILE, verdicts=(Verdict(HOSTILE, Status.UNSUPPORTED, message=HOSTILE),), stats=())
    error = result(
        "fv1", HOSTILE, verdicts=(Verdict(HOSTILE, Status.ERROR, message=HOSTILE),), stats=(stats("o", 0.3),)
    )
    record = header(
        kind=HOSTILE,
        subjects=(HOSTILE,),
        environment={HOSTILE: HOSTILE},
        command=HOSTILE,
        form={HOSTILE: HOSTILE},
        started=1e300,
    )
    wild = Repair(HOSTILE, -1, HOSTILE, f"{HOSTILE}\n```\n{HOSTILE}", f"x{HOSTILE}\n~~~", -1, 7)
    found = finding(
        HOSTILE, key=Key(*[HOSTILE] * 5), case=HOSTILE, first="f" + HOSTILE, verdict=verdict, evidence=HOSTILE, subject_spec=HOSTILE,
        confirmation=Confirmation(3, 3, HOSTILE, HOSTILE, HOSTILE, HOSTILE, True), seconds=1e300, first_map=WILD_MAP,
        diagnosis=Diagnosis(HOSTILE, HOSTILE + ". " + HOSTILE, (HOSTILE,), HOSTILE, (HOSTILE,), HOSTILE, HOSTILE, "", (wild,)),
        folded=(Folded(Key(*[HOSTILE] * 5), HOSTILE, HOSTILE, HOSTILE),), not_minimal=HOSTILE,
    )  # fmt: skip
    unnamed = Diagnosis(repairs=(wild,))
    other = finding(HOSTILE, key=Key("a", "b", "c", "d", "e"), case=HOSTILE, diagnosis=unnamed)
    summary = Summary(1, 1, 1, 1, 3, 1.0, HOSTILE, 99)
    return write_run(path, (bad, refused, error, failing("fv1", "x" + HOSTILE)), (found, other), record, summary)


def test_hostile_text_is_text(tmp_path):
    run = hostile_run(tmp_path / "run")
    page, markdown, data = (path.read_text(encoding="utf-8") for path in write_report(run))
    parsed = Page(page)
    assert not {"script", "img"} & {tag for tag, _ in parsed.tags}
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in parsed.text
    for text in (page, markdown):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)
        assert "\\x1b[31m\\u202e\\x00" in text
    assert json.loads(data)["subjects"].keys() == {HOSTILE, "x" + HOSTILE}


def test_hostile_text_stays_in_its_markdown_span(tmp_path):
    run = hostile_run(tmp_path / "run")
    write_report(run)
    fenced = False
    for line in (run / "report.md").read_text(encoding="utf-8").splitlines():
        if re.fullmatch(r"`{3,}\w*", line):
            fenced = not fenced
        elif not fenced:
            outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
            assert not re.search(r"script|img|@all|javascript", outside), line
            if line.startswith("|"):
                assert len(re.findall(r"(?<!\\)\|", line)) <= 14
    assert not fenced


def test_hostile_text_in_junit(tmp_path):
    write_junit(hostile_run(tmp_path / "run"), tmp_path / "junit.xml")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert {element.tag for element in root.iter()} <= {
        "testsuites",
        "testsuite",
        "testcase",
        "failure",
        "error",
        "skipped",
    }
