"""May a change be merged? Two sides on the very same cases, by every check and element by element.

`sides` says what each side is, `revisions` checks one out, `judged_sides` judges both. A side's process is `side_main`, its parent's view
`side_process`, between them `side_protocol`; `functions` says what changed of the code. `joined`, `change` and `held` compare stored runs,
`elements` and `ulp` outputs. `comparison` decides by `thresholds`; `said`, `element_words` and `element_table` hold the words for `text`, `markdown`, `json_text`, `junit` and `page`
with its `pictures`. `speed` times both sides, `writing` writes the files, `explaining` gives the case behind a number.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.baseline.entries import Baseline
    from flashverify.comparing.comparison import Comparison

__all__ = ["compare_runs", "write_comparison"]


def compare_runs(before: Path, after: Path, baseline: Baseline | None = None) -> Comparison:
    """Compare two runs on the cases that both judged; failures that the baseline knows may stand.

    Raises:
        NoVerdictError: no case was judged in both.
        StoreError: a folder is no run, or its data cannot be read.
    """
    from flashverify.comparing import comparison

    return comparison.compare_runs(Path(before), Path(after), baseline)


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write a comparison atomically: JSON for `.json`, plain text for `.txt`, Markdown for `.md`, a page for `.html`.

    Raises:
        UsageError: the file has another suffix.
        StoreError: it cannot be written.
    """
    from flashverify.campaign.store.files import write_atomic
    from flashverify.errors import UsageError

    path = Path(path)
    writers: dict[str, Callable[[], str]] = {
        ".html": comparison.to_html,
        ".json": comparison.to_json,
        ".md": comparison.to_markdown,
        ".txt": comparison.to_text,
        ".xml": comparison.to_junit,
    }
    if path.suffix not in writers:
        raise UsageError(f"path={str(path)!r} is not accepted: it ends in {', '.join(writers)}")
    write_atomic(path, writers[path.suffix]().encode())
