"""What a mixin gets to see."""

import torch
import triton
import triton.language as tl

from flashverify.interpreter import Layer, session
from flashverify.interpreter.hooks import InterpreterBuilder


class Watch(Layer):
    """Sees events, shapes, and which argument a pointer came from."""

    def on_open(self):
        self.seen = []

    def on_launch(self, launch):
        self.seen.append(f"launch {launch.name} {launch.grid}")
        for name, raw in launch.raw.items():
            if isinstance(raw, torch.Tensor):
                pointer = launch.arguments[name].handle
                pointer.dtype = type(pointer.dtype)(pointer.dtype.element_ty)
                pointer.dtype.origin = name

    def on_attempt(self):
        self.seen.append(f"attempt {self.programs.tolist()}")

    def on_undo(self):
        self.seen.append("undo")

    def on_finish(self, launch):
        self.seen.append("finish")

    def create_masked_load(self, ptrs, mask, other, *rest, **options):
        assert ptrs.data.shape == mask.data.shape
        self.seen.append(f"load {ptrs.dtype.origin} {ptrs.data.shape} {other is None}")
        return super().create_masked_load(ptrs, mask, other, *rest, **options)

    def create_masked_store(self, ptrs, value, mask, *rest, **options):
        assert ptrs.data.shape == value.data.shape == mask.data.shape
        assert all(x.flags.c_contiguous for x in (ptrs.data, value.data, mask.data))
        self.seen.append(f"store {ptrs.dtype.origin} {ptrs.data.shape}")
        return super().create_masked_store(ptrs, value, mask, *rest, **options)


@triton.jit
def watched(x_ptr, row_ptr, out_ptr):
    p = tl.program_id(0)
    i = tl.arange(0, 4)
    row = tl.load(row_ptr + i)
    x = tl.load(x_ptr + p * 4 + i[None, :], mask=i[None, :] < 3, other=0.0)
    tl.store(out_ptr + p * 4 + i, tl.reshape(x, (4,)) + row)
    if p == 1:
        tl.store(out_ptr + p, 0.0)


def test_a_mixin_sees_events_and_broadcast_arrays_and_where_pointers_came_from():
    with session(Watch) as opened:
        watched[(3,)](torch.ones(12), torch.ones(4), torch.ones(12))
        seen = opened.builder.seen

    start = ["load row_ptr (1, 4) True", "load x_ptr (3, 1, 4) False", "store out_ptr (3, 4)", "undo"]
    assert seen[:6] == ["launch watched (3, 1, 1)", "attempt [0, 1, 2]", *start]
    assert seen[-1] == "finish"
    assert "attempt [1]" in seen
    assert "attempt [0, 2]" in seen
    assert "store out_ptr (1,)" in seen
    assert not hasattr(InterpreterBuilder(), "seen")
