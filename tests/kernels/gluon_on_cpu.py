"""The Gluon kernels run on a CPU: each group of warps is a thread, barriers have phases and bytes, arrays are those of numpy.

Products are computed when they are waited for, the latest moment, and copies when they are issued, the earliest: a slot of a ring that is
overwritten before it was read gives wrong results, and a walk that differs between two groups of warps ends in `DeadlockError`. Bits are not
those of a GPU.
"""

import threading
import types

import numpy as np
import triton.language as tl

from tests.kernels.gluon_values import Whole, array

LONGEST_WAIT = 10.0  # seconds
_thread = threading.local()


class DeadlockError(Exception):
    """A barrier did not complete its phase in `LONGEST_WAIT`."""


class _Barrier:
    def __init__(self):
        self.changed, self.phase, self.bytes = threading.Condition(), 0, 0

    def init(self, count):
        self.count = self.left = count

    def change(self, arrivals, size):
        with self.changed:
            self.left -= arrivals
            self.bytes += size
            if self.left == self.bytes == 0:
                self.phase, self.left = self.phase ^ 1, self.count
                self.changed.notify_all()

    def wait(self, phase):
        with self.changed:
            if not self.changed.wait_for(lambda: self.phase != phase, LONGEST_WAIT):
                raise DeadlockError


class _MBarrier:
    MBarrierLayout = staticmethod(lambda: _Barrier)
    init = staticmethod(lambda barrier, count: barrier.init(count))
    expect = staticmethod(lambda barrier, size, there=True: there and barrier.change(1, size))
    wait = staticmethod(lambda barrier, phase, there=True: there and barrier.wait(phase))
    arrive = staticmethod(lambda barrier, count, pred=True: pred and barrier.change(count, 0))


class _Tma:
    @staticmethod
    def async_copy_global_to_shared(tiles, place, barrier, buffer, there=True):
        if there:
            rows = tiles.rows(place, buffer.shape[-2])
            buffer[...] = 0
            buffer.reshape(buffer.shape[-2:])[: len(rows)] = rows
            barrier.change(0, -tiles.block_type.nbytes)

    @staticmethod
    def async_copy_shared_to_global(tiles, place, buffer):
        rows = tiles.rows(place, buffer.shape[-2])
        rows[...] = buffer.reshape(buffer.shape[-2:])[: len(rows)]

    store_wait = staticmethod(lambda left: None)


class _Product:
    def __init__(self, *operands):
        self.operands, self.value = operands, None

    def computed(self):
        if self.value is None:
            a, b, acc = self.operands
            acc = acc.computed() if isinstance(acc, _Product) else acc
            self.value = array(a.astype(np.float32) @ b.astype(np.float32) + (0 if acc is None else acc))
        return self.value


def _multiply(a, b, acc, *, use_acc=True, is_async):
    product = _Product(a, b, acc if use_acc else None)
    _thread.products.append(product)
    return product


def _wait(left, products):
    while len(_thread.products) > left:
        _thread.products.pop(0).computed()
    (product,) = products
    assert product not in _thread.products, "a product is used that was not waited for"
    return product.computed()


def _either(of_arrays, of_numbers):
    def compute(x, y):
        if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
            return array(of_arrays(x, y))
        return Whole(of_numbers(x, y))

    return compute


def _where(see, x, y):
    if not isinstance(see, np.ndarray):
        return x if see else y
    found = array(np.where(see, x, y))
    return found.astype(np.float32) if found.dtype == np.float64 else found


def _specialise(parts, warps, registers):
    failures, number, programs = [], _thread.number, _thread.programs

    def work(function, args):
        try:
            begin(number, programs)
            with np.errstate(
                invalid="ignore", over="ignore"
            ):  # rows of padding and rows without keys, which are hidden
                function(*args)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def begin(number, programs):
    """This thread is a program, or a group of warps of one, and has no products under way."""
    _thread.number, _thread.programs, _thread.products = Whole(number), Whole(programs), []


def _allocate(dtype, shape, layout):
    if layout is _Barrier:
        return array([_Barrier() for _ in range(shape[0])])
    return array(np.full(shape, np.iinfo(dtype).min if dtype is np.int32 else np.nan, dtype))


def _load(at, mask=True, other=0):
    found = np.where(mask, at.x[np.where(mask, at.place, 0)], at.x.dtype.type(other))
    return array(found) if found.ndim else Whole(found)


def _sum(x, axis):
    found = x.sum(axis)
    return array(found) if found.ndim else Whole(found)


def _store(pointer, x, mask):
    pointer.x[pointer.place[mask]] = x[mask]


_LANGUAGE = types.SimpleNamespace(
    int32=np.int32,
    float32=np.float32,
    int64=None,
    program_id=lambda axis: _thread.number,
    num_programs=lambda axis: _thread.programs,
    static_range=lambda *limits: map(Whole, range(*limits)),
    **dict.fromkeys(
        ("SliceLayout", "DotOperandLayout", "NVMMADistributedLayout", "BlockedLayout", "SwizzledSharedLayout"),
        lambda *_: None,
    ),
    arange=lambda start, stop, layout: array(np.arange(start, stop)),
    zeros=lambda shape, dtype, layout: array(np.zeros(shape, dtype)),
    full=lambda shape, value, dtype, layout: array(np.full(shape, value, dtype)),
    where=_where,
    maximum=_either(np.maximum, max),
    minimum=_either(np.minimum, min),
    cdiv=lambda x, y: (x + y - 1) // y,
    max=lambda x, axis: array(x.max(axis)),
    sum=_sum,
    exp2=lambda x: array(np.exp2(x)),
    log2=lambda x: array(np.log2(x)),
    convert_layout=lambda x, layout: x,
    multiple_of=lambda x, size: x,
    load=_load,
    store=_store,
    allocate_shared_memory=_allocate,
    warp_specialize=_specialise,
)
_NAMES = {"gl": _LANGUAGE, "tl": _LANGUAGE, "tma": _Tma, "mbarrier": _MBarrier}
_NAMES |= {"warpgroup_mma": _multiply, "warpgroup_mma_wait": _wait}
_NAMES |= dict.fromkeys(("meet", "fence_async_shared"), lambda: None)


def on_cpu(kernel, known=None):
    """The function of a kernel, or of what it calls, over numpy."""
    known = {} if known is None else known
    if id(kernel) not in known:
        code, around = kernel.fn.__code__, dict(kernel.fn.__globals__)
        known[id(kernel)] = types.FunctionType(code, around, None, kernel.fn.__defaults__, kernel.fn.__closure__)
        for name, x in list(around.items()):
            if name in _NAMES:
                around[name] = _NAMES[name]
            elif isinstance(x, tl.constexpr):
                around[name] = Whole(x.value) if isinstance(x.value, int) else x.value
            elif hasattr(x, "fn") and hasattr(x, "arg_names"):
                around[name] = on_cpu(x, known)
        around["range"] = lambda *limits: map(Whole, range(*limits))
    return known[id(kernel)]


def run(kernel, programs, *args):
    """Run all programs of a kernel, one after the other."""
    function = on_cpu(kernel)
    for number in range(programs):
        begin(number, programs)
        function(*(Whole(x) if type(x) is int else x for x in args))
