from flashverify.judge.verdict import Sampled, Status, Verdict
from tests.report.synthetic import result
from tests.report.test_report_pages import pages


def test_every_page_says_how_much_of_large_cases_was_judged(tmp_path):
    parts = [Sampled(rows=10, of_rows=1000, keys=4, of_keys=5000), Sampled(30, 2000, 0, 7000, left_out=("dk", "dv"))]
    results = [
        result(f"fv1 seed={n}", verdicts=(Verdict("accuracy", Status.PASS),), sampled=each)
        for n, each in enumerate(parts)
    ]
    page, markdown, data = pages(tmp_path, results)
    said = "of 2 large cases the oracle judged 40 of 3,000 rows and 4 of 12,000 keys, and nothing of dk, dv in some"

    assert said in markdown
    assert said in page.text
    assert data["sampled"] == {
        "rows": 40,
        "of_rows": 3000,
        "keys": 4,
        "of_keys": 12000,
        "left_out": ["dk", "dv"],
        "cases": 2,
    }
