"""Reports of stored runs: HTML, Markdown, JSON and JUnit XML of one run.

Imports neither torch nor triton; matplotlib and jinja2 are imported when a page is drawn.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_junit", "write_report"]


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
