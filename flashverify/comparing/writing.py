"""The files of a comparison: in its folder, and those that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.campaign.store.files import write_atomic
from flashverify.ci.writing import write_comparison_ci

if TYPE_CHECKING:
    from flashverify.comparing.comparison import Comparison

__all__ = ["write_files"]


def write_files(comparison: Comparison, folder: Path, junit: str | None, comment: str | None) -> tuple[Path, ...]:
    """Write comparison.html, .md and .json into the folder, then JUnit XML and the comment of a pull request where they are asked for.

    Returns:
        The paths of the three.

    Raises:
        StoreError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"html": comparison.to_html, "md": comparison.to_markdown, "json": comparison.to_json}
    paths = tuple(folder / f"comparison.{suffix}" for suffix in pages)
    for path, page in zip(paths, pages.values(), strict=True):
        write_atomic(path, page().encode())
    if junit:
        Path(junit).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(Path(junit), comparison.to_junit().encode())
    write_comparison_ci(comparison.to_markdown(), comment)
    return paths
