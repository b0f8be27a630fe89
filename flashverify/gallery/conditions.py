"""What adapters declare alike: conditions for `Supports(also=...)`, and the form of products that are left to Triton's default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case
    from flashverify.numerics.form import Form

__all__ = ["dims_among", "no_zero_window", "triton_form"]


def triton_form(**fields: Any) -> Callable[[Case], Form]:
    """The form of a kernel whose fp32 products have the precision of the case: `tl.dot` takes TF32 where nobody says otherwise."""

    def form(case: Case) -> Form:
        from flashverify.numerics.form import Form

        return Form(dot=case.precision, **fields)

    return form


def dims_among(*accepted: int) -> Callable[[Case], str | None]:
    """Both head dims are among these."""

    def refusal(case: Case) -> str | None:
        refused = [f"{name}={dim}" for name, dim in (("dim_qk", case.dim_qk), ("dim_v", case.dim_v)) if dim not in accepted]
        return f"{refused[0]}: head dims are {', '.join(map(str, accepted))}" if refused else None

    return refusal


def no_zero_window(case: Case) -> str | None:
    """A side of the window that is 0 means no bound to the kernel."""
    window = case.mask.window
    return "a side of the window is 0, which means no window" if window is not None and 0 in window else None
