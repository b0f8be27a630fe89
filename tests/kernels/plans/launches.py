"""Stand-ins for compiled kernels that keep what they are launched with, and tensors to launch them on."""

import dataclasses
import sys
from types import SimpleNamespace

import torch

from flashverify_kernels import decode, launch, merge

KERNELS = {
    **dict.fromkeys(("forward_kernel", "delta_kernel", "dq_kernel", "dkdv_kernel"), launch),
    "decode_kernel": sys.modules[decode.__module__],
    "merge_kernel": sys.modules[merge.__module__],
}


class Kernel:
    """Stands in for a compiled kernel: keeps what it is launched with, addresses in place of tensors, and says by which way."""

    pre_run_hooks = ()

    def __init__(self, kernel, log):
        self.fn, self.arg_names, self._log = kernel.fn, kernel.arg_names, log

    def __getitem__(self, grid):
        def ordinary(*args, **kwargs):
            self._log.append(("ordinary", grid[0], [addresses(kwargs[name]) for name in self.arg_names]))
            return SimpleNamespace(run=self._run, function=0, packed_metadata=0)

        return ordinary

    def _run(self, x, y, z, stream, function, packed, metadata, enter, leave, *args):
        assert (y, z, metadata, enter, leave) == (1, 1, None, None, None)
        self._log.append(("planned", x, [addresses(a) for a in args]))


def addresses(value):
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    if isinstance(value, tuple):
        return tuple(addresses(x) for x in value)
    if hasattr(value, "block_shape"):
        return ("descriptor", *((x.name, addresses(getattr(value, x.name))) for x in dataclasses.fields(value)))
    return value


def tensors(dtype=torch.float16, *, gap=0, offset=0, sq=40, layout="bhsd", batch=2):
    def one(heads, length):
        memory = torch.zeros(batch * heads * length * (64 + gap) + offset, dtype=dtype)
        x = memory[offset:].view(batch, heads, length, 64 + gap)[..., :64]
        return x if layout == "bhsd" else x.transpose(1, 2).contiguous()

    return one(4, sq), one(2, 70), one(2, 70)


def ways(log):
    found = [way for way, *_ in log]
    log.clear()
    return set(found)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)
