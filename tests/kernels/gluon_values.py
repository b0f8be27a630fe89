"""What Gluon kernels compute with, over numpy: integers, arrays, pointers and descriptors."""

import types

import numpy as np

from flashverify_kernels.ragged import FAR


class Whole(int):
    """An integer of a kernel, whose division truncates."""

    def to(self, dtype):
        return self

    def __floordiv__(self, other):
        quotient = abs(int(self)) // abs(int(other))
        return Whole(quotient if (self >= 0) == (other > 0) else -quotient)

    def __mod__(self, other):
        return Whole(int(self) - int(other) * int(self // other))


def _whole(name):
    plain = getattr(int, name)

    def compute(self, other):
        return Whole(plain(self, other)) if isinstance(other, int) else NotImplemented

    return compute


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "xor"):
    setattr(Whole, f"__{_name}__", _whole(f"__{_name}__"))


class Array(np.ndarray):
    """A tensor in registers or tiles in shared memory."""

    type = types.SimpleNamespace(layout=None)

    def to(self, dtype):
        return self.astype(dtype)

    def permute(self, order):
        return self.transpose(order)

    def index(self, n):
        return self[n]

    def load(self, layout):
        return self.copy()

    def store(self, x):
        self[...] = x


def array(x):
    return np.asarray(x).view(Array)


class Pointer:
    """A place in a flat array."""

    def __init__(self, x, place=0):
        self.x, self.place = x, place

    def __add__(self, step):
        return Pointer(self.x, self.place + np.asarray(step))


class Tiles:
    """A descriptor of `[batch, head, row, channel]` fp16, or of packed rows of one batch (`ragged`)."""

    def __init__(self, x, rows, ragged=False):
        self.x, self.dtype, self.layout = x, x.dtype, None
        shape = [*[1] * (3 if ragged else 2), rows, x.shape[3]]
        self.block_type = types.SimpleNamespace(shape=shape, nbytes=2 * rows * x.shape[3])

    def rows(self, place, count):
        """Up to `count` rows from `place` on, as far as there are any."""
        *batch, h, row, _ = place
        end = self.x.shape[2]
        if len(batch) > 1:
            far, behind = batch
            assert far == FAR
            row, end = row + behind - FAR, min(behind, end)
            batch = [0]
        return self.x[(*batch, h, slice(row, max(min(row + count, end), row)))]
