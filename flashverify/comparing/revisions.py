"""Revisions of git, each checked out into a folder of its own for as long as it is judged."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.comparing.sides import git, project_of
from flashverify.errors import NoVerdictError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.comparing.sides import Side

__all__ = ["checked_out"]


@contextlib.contextmanager
def checked_out(side: Side) -> Iterator[Side]:
    """A side with its folder: a revision is checked out into a temporary one, which is removed afterwards.

    Raises:
        NoVerdictError: git refuses.
    """
    if side.kind != "revision":
        yield side
        return
    project = project_of(Path.cwd())
    with tempfile.TemporaryDirectory(prefix="flashverify-revision-") as place:
        folder = Path(place).resolve() / project.name
        git(project, "worktree", "add", "--detach", "--force", str(folder), side.commit)
        if not folder.is_dir():
            raise NoVerdictError(
                f"{side.text!r} could not be checked out: git worktree add {folder} {side.commit[:12]} failed"
            )
        try:
            yield replace(side, folder=folder)
        finally:
            git(project, "worktree", "remove", "--force", str(folder))
            git(project, "worktree", "prune")
