"""What every adapter does with a callable: it asks for the arguments that the callable has, and declares a subject."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flashverify.case.case import Case
    from flashverify.numerics.form import Form
    from flashverify.subjects.declared import Function
    from flashverify.subjects.function import FunctionSubject

    FormLike = Form | Callable[[Case], Form] | None

__all__ = ["Changes", "accepts", "declare", "first_two", "has_parameter"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What the caller of an adapter declares otherwise than the adapter does.

    Args:
        name: in reports; None for that of the callable.
        device: `auto`, `cpu` or `cuda`.
        form: the numerical form, or a function of the case; None for the adapter's.
        contract: fields of `Contract`.
        supports: fields of `Supports`; `also` is asked beside the adapter's own condition, every other field replaces.
    """

    name: str | None
    device: str
    form: FormLike
    contract: Mapping[str, Any] | None
    supports: Mapping[str, Any]


def declare(
    call: Function,
    kernel: Callable[..., Any],
    changes: Changes,
    *,
    supports: Mapping[str, Any],
    contract: Mapping[str, Any],
    form: FormLike = None,
) -> FunctionSubject:
    """The subject that `call` makes of `kernel`.

    Args:
        call: takes a `Problem` and returns what a subject returns.
        kernel: the callable under test, for its name.
        changes: what the caller declares otherwise.
        supports: the adapter's fields of `Supports`.
        contract: the adapter's fields of `Contract`.
        form: the adapter's form.

    Raises:
        UsageError: a field has no such name, or is not accepted.
    """
    given = {**supports, **changes.supports}
    given["also"] = _both(supports.get("also"), changes.supports.get("also"))
    accepted = _made(Supports, given)
    promised = _made(Contract, {**contract, **(changes.contract or {})})
    name = changes.name or getattr(kernel, "__name__", type(kernel).__name__)
    wrap = subject(
        name=name,
        supports=accepted,
        contract=promised,
        form=form if changes.form is None else changes.form,
        device=changes.device,
    )
    return wrap(call)


def has_parameter(kernel: Callable[..., Any], name: str) -> bool:
    """Whether a callable has a parameter of this name; false where its signature cannot be read."""
    return name in _parameters(kernel)


def accepts(kernel: Callable[..., Any], name: str) -> bool:
    """Whether a callable may be given an argument by this name: true of one with `**kwargs`, or without a signature."""
    found = _parameters(kernel)
    return not found or name in found or any(each.kind is each.VAR_KEYWORD for each in found.values())


def first_two(found: Any) -> tuple[Any, Any]:
    """O and LSE of what a kernel returned: a tensor, or a sequence that begins with the two."""
    if isinstance(found, tuple | list):
        return found[0], found[1] if len(found) > 1 else None
    return found, None


def _parameters(kernel: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(kernel).parameters
    except (TypeError, ValueError):
        return {}


def _made(kind: type[Any], given: Mapping[str, Any]) -> Any:
    known = {field.name for field in dataclasses.fields(kind)}
    for name in given:
        if name not in known:
            raise UsageError(f"{name}={given[name]!r} is not accepted: {kind.__name__} has no such field")
    return kind(**given)


def _both(
    one: Callable[[Case], str | None] | None, other: Callable[[Case], str | None] | None
) -> Callable[[Case], str | None] | None:
    if one is None or other is None:
        return one or other
    return lambda case: one(case) or other(case)
