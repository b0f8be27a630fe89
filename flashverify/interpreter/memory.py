"""Which tensor a pointer came from, and which elements are that tensor's own: what the mixins over memory share."""

from __future__ import annotations

import functools
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.gather import remembered
from flashverify.interpreter.hooks import triton_root
from flashverify.interpreter.layer import Layer
from flashverify.sparse_memory import zeros

if TYPE_CHECKING:
    import torch

    from flashverify.interpreter.layer import Launch

__all__ = ["Argument", "Place", "Replayed", "Tagged", "inner_place", "place", "program_of"]

_REMEMBERED = 256
_FAR = 1 << 28  # elements from which on a layout is kept for a pass or two
_REMEMBERED_FAR = 8
_OUTSIDE = (str(Path(__file__).parent), triton_root(), str(Path(np.__file__).parent))
_passed: dict[str, bool] = {}


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a kernel's source.

    Attributes:
        file: path of the innermost function that is the kernel's, or one of its device functions.
        line: in that file.
        caller: `file.py:line` in the kernel itself, where the innermost function is another one; else empty.
    """

    file: str
    line: int
    caller: str = ""

    def __str__(self) -> str:
        text = f"{Path(self.file).name}:{self.line}"
        return f"{text} from {self.caller}" if self.caller else text


@functools.lru_cache(1 << 10)
def _place(found: tuple[str, int], here: tuple[str, int]) -> Place:
    """The place of a line, and of the line of the kernel itself that leads to it."""
    return Place(*found, "" if here == found else f"{os.path.basename(here[0])}:{here[1]}")


def place(launch: Launch) -> Place:
    """Where the kernel is now; line 0 of its file where that cannot be told."""
    frame, found, name, filename = sys._getframe(1), Replayed.at, launch.name, launch.filename
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        skip = _passed.get(file)
        if skip is None:
            skip = _passed[file] = file.startswith(_OUTSIDE)
        if not skip:
            inside = file == filename and code.co_name == name
            if inside or found is None:
                here = (file, frame.f_lineno)  # Python looks for the line from the start of the function
                found = found or here
            if inside:
                return _place(found, here)
        frame = frame.f_back  # type: ignore[assignment]
    return Place(filename, 0)


class Replayed:
    """The line whose operation is being replayed: the frame of its function is not there.

    Attributes:
        at: (file, line), or None.
    """

    at: tuple[str, int] | None = None


def inner_place() -> tuple[str, int] | None:
    """The innermost line that is neither Triton's nor this package's."""
    if Replayed.at is not None:
        return Replayed.at
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OUTSIDE):
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def program_of(launch: Launch, number: int) -> tuple[int, int, int]:
    """The program ids of a flat program number."""
    _, y, z = launch.grid
    return number // (y * z), number // z % y, number % z


class _Layout:
    """The elements of a strided tensor, counted from its first one.

    Attributes:
        extent: elements from the first to one past the last; 0 where there is none.
        own: `[extent + 1]` bool, whether an element is the tensor's, False at the end; None where all are.
    """

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        axes = sorted((stride, n) for n, stride in zip(shape, strides, strict=True) if n > 1 and stride)
        self.extent = 1 + sum((n - 1) * stride for stride, n in axes) if math.prod(shape) else 0
        step, dense = 1, True
        for stride, n in axes:
            dense &= stride == step
            step *= n
        self.own: Any = None
        if self.extent and not dense:
            self.own = zeros(self.extent + 1, bool)
            steps, lengths = zip(*reversed(axes), strict=True)
            np.ndarray(lengths, bool, self.own, 0, steps)[...] = True


_layouts: dict[Any, _Layout] = {}
_far_layouts: dict[Any, _Layout] = {}
"""Of tensors that span far more memory than they touch: a page or so for each of their rows."""


class Argument:
    """A tensor that a launch got.

    Attributes:
        name: of the kernel's parameter, or of a field of it, see `leaves`.
        tensor: what the caller passed.
        base: address of its first element.
        size: bytes of an element.
        shift: log2 of that.
        extent: elements from the first to one past the last.
        own: see `_Layout`.
        state: whatever a mixin keeps about it for the launch.
    """

    __slots__ = ("_words", "base", "extent", "name", "own", "shift", "size", "state", "tensor")

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        key = (tensor.shape, tensor.stride())
        layout = _layouts.get(key) or _far_layouts.get(key)
        if layout is None:
            layout = _Layout(*key)
            kept, most = (_layouts, _REMEMBERED) if layout.extent < _FAR else (_far_layouts, _REMEMBERED_FAR)
            if len(kept) >= most:
                kept.clear()
            kept[key] = layout
        self.name, self.tensor, self.base, self.size = name, tensor, tensor.data_ptr(), tensor.element_size()
        self.extent, self.own = layout.extent, layout.own
        self.shift = self.size.bit_length() - 1
        self.state: Any = None
        self._words: Any = None

    def words(self, dtype: Any) -> Any:
        """The memory from the first element to the last, as an array; None where it cannot be one of `dtype`."""
        if dtype.itemsize != self.size or not self.extent:
            return None
        if self._words is None:
            self._words = remembered(self.base, self.extent, dtype)
        elif self._words.dtype != dtype:
            self._words = self._words.view(dtype)
        return self._words

    def places(self, at: Any, *, signed: bool = False) -> Any:
        """Distances of addresses from the first element, elements, uint64: those before it are beyond every extent, or negative if `signed`."""
        offset = at - np.uint64(self.base)
        if signed:
            return offset.view(np.int64) >> self.shift
        offset >>= np.uint64(self.shift)
        return offset

    def strange(self, places: Any) -> Any:
        """Which distances are not of the tensor's elements: a bool array, or None where all of them are."""
        extent = np.uint64(self.extent)
        if self.own is None:
            inside = places.size == 0 or np.maximum.reduce(places, axis=None) < extent
            return None if inside else places >= extent
        good = self.own.take(np.minimum(places, extent).view(np.int64))
        return None if count_nonzero(good) == good.size else ~good

    def owns_rows(self, places: Any, width: int) -> bool:
        """Whether all of `width` elements from each place on are the tensor's; the places are inside."""
        rows = np.ndarray((self.own.size - width + 1, width), bool, self.own, 0, self.own.strides * 2)
        good = rows[places]
        return bool(count_nonzero(good) == good.size)

    def element(self, address: int) -> int:
        """Distance of an address from the first element, elements."""
        return (int(address) - self.base) >> self.shift

    def index(self, address: int) -> tuple[int, ...]:
        """Logical index of an element, of the first one that lies there; its distance from the first one if it is not the tensor's."""
        left = element = self.element(address)
        if element < 0 or element >= self.extent or (self.own is not None and not self.own[element]):
            return (element,)
        shape, strides = self.tensor.shape, self.tensor.stride()
        found = [0] * len(shape)
        for axis in sorted(range(len(shape)), key=lambda a: -strides[a]):
            if shape[axis] > 1 and strides[axis]:
                found[axis] = min(left // strides[axis], shape[axis] - 1)
                left -= found[axis] * strides[axis]
        return tuple(found) if left == 0 else (element,)


class Tagged(Layer):
    """Knows the tensor of every pointer: its `Argument` rides on the type object of the pointer.

    Attributes:
        launch: the `Launch` that runs now, or None.
        tensors: its tensors.
    """

    launch: Any = None
    tensors: tuple[Argument, ...] = ()

    def on_launch(self, launch: Launch) -> None:
        """Tag the pointers."""
        if self.launch is not launch:  # once, however many mixins there are
            self.launch = launch
            tensors = [(Argument(name, x), pointer) for name, x, pointer in launch.tensors]
            self.tensors = tuple(argument for argument, _ in tensors)
            for argument, pointer in tensors:
                tag = object.__new__(type(pointer.dtype))
                tag.__dict__.update(pointer.dtype.__dict__)
                tag.argument = argument
                pointer.dtype = tag
        super().on_launch(launch)

    def on_finish(self, launch: Launch) -> None:
        """Let go of the tensors."""
        super().on_finish(launch)
        self.launch, self.tensors = None, ()

    def argument(self, ptrs: Any, keep: Any) -> Argument | None:
        """The tensor of a tile of pointers; by address where the pointers lost their tag, as by a cast; None if there is none."""
        found: Argument | None = getattr(ptrs.dtype, "argument", None)
        if found is not None or not count_nonzero(keep):
            return found
        first = int(ptrs.data[keep].flat[0])
        size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
        for argument in self.tensors:
            if argument.size == size and 0 <= argument.element(first) < argument.extent:
                return argument
        return None
