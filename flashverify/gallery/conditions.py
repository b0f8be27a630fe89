"""What adapters declare alike: conditions for `Supports(also=...)`, and the form of products that are left to Triton's default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flashverify.case.case import Case
    from flashverify.numerics.form import Form

__all__ = ["alibi_under_causal", "all_of", "dims_among", "no_zero_window", "rows_end_at_keys", "triton_form"]


def triton_form(**fields: Any) -> Callable[[Case], Form]:
    """The form of a kernel whose fp32 products have the precision of the case: `tl.dot` takes TF32 where nobody says otherwise."""

    def form(case: Case) -> Form:
        from flashverify.numerics.form import Form

        return Form(dot=case.precision, **fields)

    return form


def dims_among(*accepted: int) -> Callable[[Case], str | None]:
    """Both head dims are among these."""

    def refusal(case: Case) -> str | None:
        refused = [
            f"{name}={dim}" for name, dim in (("dim_qk", case.dim_qk), ("dim_v", case.dim_v)) if dim not in accepted
        ]
        return f"{refused[0]}: head dims are {', '.join(map(str, accepted))}" if refused else None

    return refusal


def no_zero_window(case: Case) -> str | None:
    """A side of the window that is 0 means no bound to the kernel."""
    window = case.mask.window
    return "a side of the window is 0, which means no window" if window is not None and 0 in window else None


def rows_end_at_keys(case: Case) -> str | None:
    """The rows of a sequence are its last ones, so it has as many keys at least: a cache holds the keys of the rows too."""
    mask = case.mask
    if mask.packed is not None:
        lengths: Sequence[tuple[int, int]] = mask.packed.lengths()
    else:
        rows = mask.query_lengths or (case.seq_q,) * case.batch
        lengths = tuple(zip(rows, mask.key_lengths or (case.seq_k,) * case.batch, strict=True))
    return "a sequence has more rows than keys" if any(r > k for r, k in lengths) else None


def all_of(*conditions: Callable[[Case], str | None]) -> Callable[[Case], str | None]:
    """Every one of these conditions holds."""
    return lambda case: next((reason for each in conditions if (reason := each(case)) is not None), None)


def alibi_under_causal(case: Case) -> str | None:
    """ALiBi counts from the last key, as a bottom-right causal mask does; a case without one counts from the first."""
    return "ALiBi without causal" if case.logits.alibi is not None and case.mask.causal is None else None
