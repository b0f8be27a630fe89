"""Reports of stored runs: HTML, Markdown and JSON of one run, and the comparison of two.

Imports neither torch nor triton; matplotlib and jinja2 are imported when a page is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.baseline.entries import Baseline
    from flashverify.report.compare import Comparison

__all__ = ["compare_runs", "write_comparison", "write_junit", "write_report"]


def write_report(run_dir: Path) -> tuple[Path, Path, Path]:
    """Write report.html, report.md and report.json into a run folder, each atomically.

    Returns:
        Their paths, in this order.

    Raises:
        StoreError: the folder is no run, its data cannot be read, or a file cannot be written.
    """
    from flashverify.campaign.store.files import write_atomic
    from flashverify.campaign.store.reader import open_run
    from flashverify.report.content import build_report
    from flashverify.report.html import render_html
    from flashverify.report.json_report import render_json
    from flashverify.report.markdown import render_markdown

    run_dir = Path(run_dir)
    report = build_report(open_run(run_dir))
    paths = run_dir / "report.html", run_dir / "report.md", run_dir / "report.json"
    pages = render_html(report).encode(), render_markdown(report).encode(), render_json(report)
    for path, page in zip(paths, pages, strict=True):
        write_atomic(path, page)
    return paths


def write_junit(run_dir: Path, path: Path) -> None:
    """Write a run's result as JUnit XML, atomically.

    Raises:
        StoreError: the folder is no run, its data cannot be read, or the file cannot be written.
    """
    from flashverify.campaign.store.files import write_atomic
    from flashverify.campaign.store.reader import open_run
    from flashverify.report.content import build_report
    from flashverify.report.junit import render_junit

    write_atomic(Path(path), render_junit(build_report(open_run(Path(run_dir)))))


def compare_runs(before: Path, after: Path, baseline: Baseline | None = None) -> Comparison:
    """Compare two runs on the cases that both judged; failures that the baseline knows may stand.

    Raises:
        NoVerdictError: no case was judged in both.
        StoreError: a folder is no run, or its data cannot be read.
    """
    from flashverify.report import compare

    return compare.compare_runs(Path(before), Path(after), baseline)


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write a comparison atomically: JSON for `.json`, plain text for `.txt`, Markdown for `.md`.

    Raises:
        UsageError: the file has another suffix.
        StoreError: it cannot be written.
    """
    from flashverify.campaign.store.files import write_atomic
    from flashverify.errors import UsageError

    path = Path(path)
    writers: dict[str, Callable[[], str]] = {
        ".json": comparison.to_json,
        ".md": comparison.to_markdown,
        ".txt": comparison.to_text,
    }
    if path.suffix not in writers:
        raise UsageError(f"path={str(path)!r} is not accepted: it ends in {', '.join(writers)}")
    write_atomic(path, writers[path.suffix]().encode())
