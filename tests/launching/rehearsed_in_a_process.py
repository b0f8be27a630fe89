"""Rehearses launches of a kernel, then makes the same launches up to the driver, which is pretended, and prints what was compiled."""

import json

import torch
import triton
import triton.language as tl
from triton.compiler import CompiledKernel

from flashverify.launching.compilations import NotCompiled, compiled_kernels_only, counting_compilations
from flashverify.launching.pretend import pretend_cuda
from flashverify.launching.rehearsal import rehearsed_launches


@triton.jit
def scaled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2.0, mask=i < n)


# 24 is no size of a block: Triton passes over a configuration that does not compile.
tuned = triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (24, 16, 32)], key=["n"])(scaled)


def host(n, shift=0, block=16):
    """Attention's stand-in: the class of `n` (1, a multiple of 16, neither) and of the address decide about the kernel."""
    x = torch.zeros(64, device="cuda")[shift:]
    assert x.is_cuda
    return scaled[(1,)](x, torch.empty(64, device="cuda"), n, BLOCK=block)


SAME = ((1,), (16,), (17,), (17, 1), (32,), (19,), (48,))


class _Launched(CompiledKernel):
    """A kernel that is loaded and launched without a GPU."""

    def _init_handles(self):
        self.module, self._run = object(), lambda *_: None


def outcome(*args, **kwargs):
    try:
        host(*args, **kwargs)
    except NotCompiled:
        return "NotCompiled"
    return "launched"


said = {}
with rehearsed_launches((9, 0)) as launches, counting_compilations() as counts:
    said["hashes"] = [host(*args).hash for args in SAME[:4]]
    for args in SAME[4:]:
        host(*args)
    host(1), host(17, 1)
    said["rehearsed"] = {"launches": launches.count, "compiled": counts.compiled}

CompiledKernel._init_handles = _Launched._init_handles
scaled.device_caches.clear()  # as in a new process
with pretend_cuda((9, 0)), counting_compilations() as counts, compiled_kernels_only():
    hashes = [host(*args).hash for args in SAME[:4]]
    for args in SAME[4:]:
        host(*args)
    said["launched"] = {"stored": counts.stored, "compiled": counts.compiled, "hashes": hashes}
    said["refused"] = [outcome(17, block=32), outcome(17, block=32)]
with pretend_cuda((9, 0)):
    said["allowed"] = outcome(17, block=32)

with rehearsed_launches((9, 0)) as launches, counting_compilations() as counts:
    x = torch.zeros(64, device="cuda")
    tuned[(1,)](x[1:], x, 1)
    said["tuned"] = {"launches": launches.count, "compiled": counts.compiled}
print(json.dumps(said))
