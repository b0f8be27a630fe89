"""The two sides of a comparison: each a stored run, a subject, a folder or a git revision."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flashverify.campaign import toolkit
from flashverify.errors import SubjectLoadError, UsageError
from flashverify.subjects.sources import sources_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Side", "git", "project_of", "sides_of"]

Kind = Literal["run", "subject", "folder", "revision"]
_ACCEPTED = "a run folder, a subject, or with --subject a folder or a git revision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side.

    Attributes:
        text: as it was given.
        kind: what it is.
        spec: of the subject that is judged; empty of a stored run.
        folder: of a run, or the copy of the project that the subject comes from; None for the project itself.
        commit: of a revision, in full.
    """

    text: str
    kind: Kind
    spec: str = ""
    folder: Path | None = None
    commit: str = ""

    @property
    def run(self) -> Path | None:
        """The folder of a stored run."""
        return self.folder if self.kind == "run" else None

    def environment(self) -> dict[str, str]:
        """The variables of the processes that judge it."""
        if self.folder is None or self.kind == "run":
            return {}
        here, project = Path.cwd(), project_of(Path.cwd())
        inside = here.relative_to(project) if project in (here, *here.parents) else Path()
        working = self.folder / inside
        return sources_environment(self.folder, project, working if working.is_dir() else self.folder)


def sides_of(texts: Sequence[str], spec: str | None) -> tuple[Side, Side]:
    """Both sides.

    Args:
        texts: two sides, or one of the form `A..B`: two revisions, HEAD where one is empty. `A...B` starts at their merge base.
        spec: of the subject of folders and revisions.

    Raises:
        UsageError: a side is none of the four kinds, or `spec` is missing or has no use.
    """
    if len(texts) == 1:
        texts = _range(texts[0])
    before, after = (_side(text, spec) for text in texts)
    if spec and {before.kind, after.kind} <= {"run", "subject"}:
        raise UsageError(f"--subject={spec!r} is not accepted: neither side is a folder or a revision")
    return before, after


def _range(text: str) -> tuple[str, str]:
    dots = "..." if "..." in text else ".."
    first, found, second = text.partition(dots)
    if not found:
        raise UsageError(f"{text!r} is not accepted: two sides, or two revisions as BASE..CANDIDATE")
    first, second = first or "HEAD", second or "HEAD"
    if dots == "...":
        base = git(Path.cwd(), "merge-base", first, second)
        if not base:
            raise UsageError(f"{text!r} is not accepted: {first} and {second} are not revisions with a merge base")
        first = base
    return first, second


def _side(text: str, spec: str | None) -> Side:
    path = Path(text)
    if (path / "run.json").is_file():
        return Side(text=text, kind="run", folder=path)
    if path.is_dir() and spec:
        return Side(text=text, kind="folder", spec=spec, folder=path.resolve())
    if path.exists() and ":" not in text:
        raise UsageError(f"{text!r} is not accepted: it is no run folder; accepted: {_ACCEPTED}")
    commit = (
        git(Path.cwd(), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}") if spec else ""
    )
    if commit and spec:
        return Side(text=text, kind="revision", spec=spec, commit=commit)
    try:  # before anything is judged: the other side of a mistyped path may cost minutes
        toolkit.load_toolkit(toolkit.BUNDLED).require_findable(text)
    except SubjectLoadError as error:
        raise UsageError(
            f"{text!r} is not accepted: it is no run folder{', no folder, no revision' if spec else ''}, and {error}"
        ) from error
    return Side(text=text, kind="subject", spec=text)


def project_of(folder: Path) -> Path:
    """The working tree of git that holds a folder, or the folder itself."""
    found = git(folder, "rev-parse", "--show-toplevel")
    return Path(found).resolve() if found else folder.resolve()


def git(folder: Path, *words: str) -> str:
    """What git prints, without its last newline; empty where it fails or is not there."""
    try:
        done = subprocess.run(("git", *words), cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
