import inspect
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

SCALARS = {"int32": "i32", "int64": "i64", "uint32": "u32", "uint64": "u64", "fp32": "fp32"}
"""Triton's short names of the types that numbers are declared with."""


def kernel(fn):
    """Compile `fn` as a kernel that never specialises on a runtime value.

    Sizes, strides, lengths and pointer alignment would each multiply the compile keys; what the code may assume about
    them is passed as constexpr flags instead (`EVEN_*`, `ALIGNED`). Parameters that are records are annotated with their class.
    """
    runtime = [p.name for p in inspect.signature(fn).parameters.values() if p.annotation is not tl.constexpr]
    make = triton.jit if triton.knobs.runtime.interpret else _Kernel
    return make(fn, do_not_specialize=runtime, do_not_specialize_on_alignment=runtime)


def is_record(annotation: Any) -> bool:
    """Whether a parameter or field is a record of `arguments`."""
    return isinstance(annotation, type) and hasattr(annotation, "_fields")


class _Kernel(JITFunction):  # type: ignore[misc]
    """A kernel whose records have the types that they declare.

    Triton (3.6 and 3.7) gives a number in a tuple its type by its value, makes a constant of 1 and tells multiples of 16 apart,
    whatever `do_not_specialize` says of the parameter. Here the types that it finds are replaced by the declared ones.
    """

    def create_binder(self):
        *others, bind = super().create_binder()
        parameters = enumerate(self.signature.parameters.values())
        records = [(n, _Types(p.annotation)) for n, p in parameters if is_record(p.annotation)]

        def bind_as_declared(*args, **kwargs):
            bound, specialization, options = bind(*args, **kwargs)
            for n, types in records:
                specialization[n] = (types[specialization[n][0]], None)
            return bound, specialization, options

        return *others, bind_as_declared


class _Types(dict[Any, Any]):
    """The declared types of a record by those that Triton finds, from which pointers and what is absent are taken."""

    def __init__(self, record):
        self._record = record

    def __missing__(self, found):
        types = self[found] = _declared(self._record, found)
        return types


def _declared(record, found):
    return record(
        *(
            SCALARS[kind.name] if isinstance(kind, tl.dtype) else _declared(kind, x) if is_record(kind) else x
            for kind, x in zip(record.__annotations__.values(), found, strict=True)
        )
    )
