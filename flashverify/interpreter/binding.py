"""From the arguments of a launch, as the caller passed them, to those that the kernel gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from triton.runtime.jit import mangle_type
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify.interpreter.blocks import Descriptor
from flashverify.interpreter.formats import numpy_dtype
from flashverify.interpreter.groups import NUMBERS, kind_of
from flashverify.interpreter.hooks import handle, stock, tl
from flashverify.interpreter.layer import leaves
from flashverify.interpreter.records import Record, contents

if TYPE_CHECKING:
    from flashverify.interpreter.signature import Signature

__all__ = ["Binding"]

_REMEMBERED = 1 << 12
_KINDS = {float: tl.float32, bool: tl.int1}
"""The types of Python's numbers where a parameter declares none; that of an integer depends on its value."""


class Binding:
    """The arguments of one launch.

    Args:
        signature: of the kernel.
        pointers: types of pointers by those of elements, for every launch.

    Attributes:
        tensors: those among the arguments that were made so far, named as `layer.leaves` has them, each with its pointer.
        held: forms of the tuples with names among them, see `keys.hold`.
        rest: made arguments whose forms are in none of these.
        kinds: of the arguments, see `groups.kind_of`; a tuple that is known stands for what it holds.
    """

    def __init__(self, signature: Signature, pointers: dict[Any, Any]) -> None:
        self._signature, self._pointers = signature, pointers
        self.tensors: list[tuple[str, torch.Tensor, Any]] = []
        self.held: dict[int, tuple[Any, int, list[Any]]] = {}
        self.rest: list[Any] = []
        self.kinds: list[Any] = []

    def argument(self, name: str, value: Any) -> Any:
        """An argument in the type that a compiled kernel would get: the declared one, and fp32 for a Python float."""
        constant = name in self._signature.constexprs
        if value.__class__ in NUMBERS:
            self.kinds.append(kind_of(value))
            return value if constant else self._made(name, value)
        several = isinstance(value, tuple) and not constant
        record = self._record(name, value) if several else None
        if record is not None:
            return record
        self.kinds += [kind_of(x) for _, x in leaves({name: value})]
        made = value if constant else self._made(name, value)
        if several:
            self.rest.append(made)
        return made

    def _record(self, name: str, value: tuple[Any, ...]) -> Any:
        """A tuple with names of numbers and tensors: what depends on the numbers is made once; None where it is another one."""
        key: list[Any] = [name]
        given: list[torch.Tensor] = []
        if not contents(value, key, given):
            return None
        known, found = self._signature.records, tuple(key)
        record = known.get(found)
        if record is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            at = len(self.tensors)
            made = self._made(name, value)
            record = known[found] = Record(made, [(path, pointer) for path, _, pointer in self.tensors[at:]])
            del self.tensors[at:]
        self.kinds.append(record)
        return record.bound(self, given, [self._pointer(x) for x in given])

    def _made(self, name: str, value: Any) -> Any:
        if value.__class__ in NUMBERS:
            if value is None:
                return None
            return self._integer(name, value) if value.__class__ is int else self._scalar(name, value)
        if isinstance(value, tuple):
            made = list(map(self._made, self._signature.fields_of(name, value), value))
            return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
        if isinstance(value, torch.Tensor):
            pointer = self._pointer(value)
            self.tensors.append((name, value, pointer.handle))
            return pointer
        if isinstance(value, TensorDescriptor):
            base = self._made(name, value.base)
            return Descriptor(base, value.shape, value.strides, value.block_shape, value.padding)
        return self._scalar(name, value)

    def _pointer(self, value: torch.Tensor) -> Any:
        kind = self._pointers.get(value.dtype)
        if kind is None:
            kind = self._pointers[value.dtype] = tl.str_to_ty(mangle_type(value), None)
        return tl.tensor(handle(np.array([value.data_ptr()], np.uint64), kind), kind)

    def _integer(self, name: str, value: int) -> Any:
        """The same tensor, read-only, at every launch."""
        known = self._signature.integers
        found = known.get((name, value))
        if found is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            found = known[name, value] = self._scalar(name, value)
            found.handle.data.flags.writeable = False
        return found

    def _scalar(self, name: str, value: Any) -> Any:
        if isinstance(value, (int, float)):
            kind = self._signature.types.get(name, _KINDS.get(value.__class__))
            if kind is not None:
                return tl.tensor(handle(np.array([value]).astype(numpy_dtype(kind)), kind), kind)
        return stock._implicit_cvt(value)
