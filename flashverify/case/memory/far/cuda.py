"""Tensors on a GPU that span more addresses than they have memory: CUDA's virtual memory, one block mapped many times.

The pages that hold elements of the tensor have memory of their own. All others, from 2^31 elements before the first one, are one
filler block that is mapped again and again, and that holds NaN: an address that wrapped reads NaN and stores where nothing is lost.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.case.memory.far.strides import span

if TYPE_CHECKING:
    import torch

__all__ = ["cuda_copy", "unavailable"]

_FILLER = 64 << 20
_BEFORE = 1 << 31
_POISON = 0xFF
"""A byte of which every 16-bit and 32-bit float is a NaN."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


_PINNED, _DEVICE, _READ_WRITE = 1, 1, 3


@functools.cache
def _driver() -> Any:
    driver = ctypes.CDLL("libcuda.so.1")
    address, size, handle = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint64
    driver.cuMemAddressReserve.argtypes = (ctypes.POINTER(address), size, size, address, handle)
    driver.cuMemAddressFree.argtypes = (address, size)
    driver.cuMemCreate.argtypes = (ctypes.POINTER(handle), size, ctypes.POINTER(_Properties), handle)
    driver.cuMemMap.argtypes = (address, size, size, handle, handle)
    driver.cuMemUnmap.argtypes = (address, size)
    driver.cuMemSetAccess.argtypes = (address, size, ctypes.POINTER(_Access), size)
    driver.cuMemRelease.argtypes = (handle,)
    driver.cuMemGetAllocationGranularity.argtypes = (ctypes.POINTER(size), ctypes.POINTER(_Properties), ctypes.c_int)
    return driver


def _call(name: str, *args: Any) -> None:
    code = getattr(_driver(), name)(*args)
    if code:
        raise OSError(f"{name} returned {code}")


def unavailable() -> str:
    """Why this machine maps no memory of its GPU, in one line; empty where it does."""
    import torch

    if not torch.cuda.is_available():
        return "torch sees no GPU"
    try:
        _Window(torch.zeros(2, 2, device="cuda"), (2**20, 1))
    except (OSError, AttributeError) as error:
        return f"CUDA maps no virtual memory here: {error}"
    return ""


class _Window:
    """Mapped addresses around one tensor; what `__cuda_array_interface__` of torch takes for the bytes from its first element on."""

    def __init__(self, tensor: torch.Tensor, strides: tuple[int, ...]) -> None:
        import torch

        size, shape = tensor.element_size(), tuple(tensor.shape)
        device = tensor.device.index or 0
        self._properties = _Properties(type=_PINNED, location=_Location(_DEVICE, device))
        page = ctypes.c_size_t()
        torch.cuda.synchronize(device)
        _call("cuMemGetAllocationGranularity", ctypes.byref(page), ctypes.byref(self._properties), 0)
        self._page = page.value
        extent = span(shape, strides)
        before = self._rounded(_BEFORE * size)
        total = before + self._rounded(extent * size) + self._page
        start = ctypes.c_uint64()
        _call("cuMemAddressReserve", ctypes.byref(start), total, 0, 0, 0)
        self._maps: list[tuple[int, int]] = []
        self._handles: list[int] = []
        self._finalizer = weakref.finalize(self, _released, start.value, total, self._maps, self._handles)
        own = _own_pages(shape, strides, size, before, self._page)
        self._map(start.value, total, own, device)
        self.__cuda_array_interface__ = {
            "shape": (extent * size,),
            "typestr": "|u1",
            "data": (start.value + before, False),
            "version": 3,
        }

    def _rounded(self, nbytes: int) -> int:
        return -(-nbytes // self._page) * self._page

    def _created(self, nbytes: int) -> int:
        handle = ctypes.c_uint64()
        _call("cuMemCreate", ctypes.byref(handle), nbytes, ctypes.byref(self._properties), 0)
        self._handles.append(handle.value)
        return handle.value

    def _map(self, start: int, total: int, own: list[tuple[int, int]], device: int) -> None:
        filler, block = None, self._rounded(_FILLER)
        at = 0
        for first, behind in (*own, (total, total)):
            while at < first:
                filler = filler or self._created(block)
                length = min(block, first - at)
                _call("cuMemMap", start + at, length, 0, filler, 0)
                self._maps.append((start + at, length))
                at += length
            if behind > first:
                _call("cuMemMap", start + first, behind - first, 0, self._created(behind - first), 0)
                self._maps.append((start + first, behind - first))
                at = behind
        access = _Access(_Location(_DEVICE, device), _READ_WRITE)
        _call("cuMemSetAccess", start, total, ctypes.byref(access), 1)
        self.filler = next(((at, length) for at, length in self._maps if length == block), None)
        self.own = [(start + first, behind - first) for first, behind in own]


def _own_pages(
    shape: tuple[int, ...], strides: tuple[int, ...], size: int, before: int, page: int
) -> list[tuple[int, int]]:
    """Ranges of bytes, multiples of a page from the start of the window, that hold elements; ascending and disjoint."""
    at = np.zeros(1, np.int64)
    for n, stride in zip(shape, strides, strict=True):
        at = (at[:, None] + np.arange(n if stride else 1) * stride).reshape(-1)
    pages = np.unique((before + at * size) // page)
    breaks = np.flatnonzero(np.diff(pages) > 1)
    firsts, lasts = np.r_[pages[:1], pages[breaks + 1]], np.r_[pages[breaks], pages[-1:]]
    return [(int(a) * page, (int(b) + 1) * page) for a, b in zip(firsts, lasts, strict=True)]


def _released(start: int, total: int, maps: list[tuple[int, int]], handles: list[int]) -> None:
    import torch

    torch.cuda.synchronize()
    driver = _driver()
    for at, length in maps:
        driver.cuMemUnmap(at, length)
    for handle in handles:
        driver.cuMemRelease(handle)
    driver.cuMemAddressFree(start, total)


class _Bytes:
    """Some mapped bytes, as torch takes them; keeps the window alive."""

    def __init__(self, window: _Window, at: int, length: int) -> None:
        self._window = window
        self.__cuda_array_interface__ = {"shape": (length,), "typestr": "|u1", "data": (at, False), "version": 3}


def cuda_copy(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A tensor of these strides that holds the values of another one, on its GPU.

    Args:
        tensor: on a GPU.
        strides: in elements.

    Raises:
        OSError: CUDA does not map the memory.
    """
    import torch

    window = _Window(tensor, strides)
    for at, length in (*window.own, *([window.filler] if window.filler else [])):
        torch.as_tensor(_Bytes(window, at, length), device=tensor.device).fill_(_POISON)
    flat = torch.as_tensor(window, device=tensor.device)
    made = flat[: flat.numel()].view(tensor.dtype).as_strided(tuple(tensor.shape), strides)
    target, values = made, tensor.detach()
    for axis, stride in enumerate(strides):
        if stride == 0 and tensor.shape[axis] > 1:
            target, values = target.narrow(axis, 0, 1), values.narrow(axis, 0, 1)
    target.copy_(values)
    return made
