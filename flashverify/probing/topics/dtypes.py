"""The dtypes, and the precisions of fp32 products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.formats import DTYPES
from flashverify.probing.words import case_text

if TYPE_CHECKING:
    from flashverify.probing.notebook import Notebook

__all__ = ["dtypes", "precisions"]


def dtypes(notebook: Notebook) -> None:
    """Those that run."""
    found = tuple(dtype for dtype in DTYPES if _runs(notebook, dtype))
    notebook.infer("supports", "dtypes", found, "the plainest case runs")


def precisions(notebook: Notebook) -> None:
    """The precisions of fp32 products, of a subject that looks at what is asked for."""
    found = ["ieee"]
    for precision in ("tf32", "tf32x3") if "fp32" in notebook.values["supports", "dtypes"] else ():
        case = case_text(notebook.base | {"dtype": "fp32", "precision": precision})
        seen = notebook.tried(case, form={"dot": precision})
        if seen.right and "case.precision" in seen.read:
            found.append(precision)
    notebook.infer("supports", "precisions", tuple(found), "looked at, and right within the bounds of each")


def _runs(notebook: Notebook, dtype: str) -> bool:
    return dtype == notebook.base["dtype"] or notebook.seen({"dtype": dtype}).ran
