"""What a probe asks of the process that runs the subject."""

from __future__ import annotations

import msgspec

__all__ = ["Assumed", "Explain", "FormFit", "Load", "Question", "Repeat", "Trial", "Value"]

Value = bool | int | float | str | None


class Assumed(msgspec.Struct, frozen=True, kw_only=True):
    """The conventions that a trial is judged under.

    Attributes:
        lse_base: of the returned LSE.
        ignored: outputs that are not judged, because they are known to be wrong.
        gradients: asked of the backward.
        form: fields of `Form` that differ from their defaults.
        contiguous: every tensor is made contiguous first.
        supports: fields of `Supports`, for questions that draw cases of their own; everything where there are none.
    """

    lse_base: str = "e"
    ignored: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ("dq", "dk", "dv")
    form: dict[str, Value] = {}
    contiguous: bool = False
    supports: dict[str, Value | list[Value]] = {}


class Load(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Load the subject; the first question of every process.

    Attributes:
        subject: as `--subject` takes it.
        device: `cpu` or `cuda`.
    """

    subject: str
    device: str


class Trial(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run one case.

    Attributes:
        case: its text.
        assumed: the conventions.
        readings: texts of cases of the same shape, by name: what the subject may have computed instead.
        pages_alone: of a paged case, k and v are NaN outside the pages.
    """

    case: str
    assumed: Assumed = Assumed()
    readings: dict[str, str] = {}
    pages_alone: bool = False


class Repeat(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Compare the bits of one case over repeats, alone and in its batch."""

    case: str
    assumed: Assumed = Assumed()


class FormFit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Find the smallest numerical form that explains the cases `fitted`, and judge it on the cases `held_out`, of one dtype."""

    fitted: tuple[str, ...]
    held_out: tuple[str, ...]
    assumed: Assumed
    seconds: float


class Explain(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Name the wrong semantics that explains the first failure of a case."""

    case: str
    assumed: Assumed
    seconds: float


Question = Load | Trial | Repeat | FormFit | Explain
