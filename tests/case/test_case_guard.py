import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from flashverify.case import guard_outputs
from flashverify.case.memory.guard import GUARD_BYTES
from flashverify.errors import UsageError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int16, torch.int32, torch.int64)

FACTORIES = {
    "empty": lambda x: torch.empty(3, 4, dtype=x.dtype),
    "empty_like": torch.empty_like,
    "empty_strided": lambda x: torch.empty_strided((3, 4), (9, 2), dtype=x.dtype),
    "new_empty": lambda x: x.new_empty(3, 4),
    "new_empty_strided": lambda x: x.new_empty_strided((3, 4), (1, 5)),
    "channels_last": lambda x: torch.empty(1, 3, 2, 4, dtype=x.dtype, memory_format=torch.channels_last),
}
FILLED = {
    "zeros": lambda x: torch.zeros(3, 4, dtype=x.dtype),
    "zeros_like": torch.zeros_like,
    "new_zeros": lambda x: x.new_zeros(3, 4),
    "ones": lambda x: torch.ones(3, 4, dtype=x.dtype),
    "ones_like": torch.ones_like,
    "new_ones": lambda x: x.new_ones(3, 4),
    "full": lambda x: torch.full((3, 4), 3, dtype=x.dtype),
    "full_like": lambda x: torch.full_like(x, 3),
    "new_full": lambda x: x.new_full((3, 4), 3),
}


@pytest.mark.parametrize("pattern", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("name", FACTORIES)
def test_uninitialised_memory_is_poisoned_until_it_is_written(name, dtype, pattern):
    like = torch.zeros(4, 3, dtype=dtype).t()
    plain = FACTORIES[name](like)
    with guard_outputs(pattern=pattern) as guard:
        tensor = FACTORIES[name](like)

    assert (plain.shape, plain.stride(), plain.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert tensor.data_ptr() % 64 == 0
    assert guard.is_guarded(tensor)
    assert guard.unwritten(tensor).all()
    assert not dtype.is_floating_point or tensor.isnan().all()
    tensor[..., 0] = 1
    assert [0, tensor.numel() - tensor[..., 0].numel()] == [
        int(guard.unwritten(tensor)[..., 0].sum()),
        int(guard.unwritten(tensor).sum()),
    ]
    tensor.fill_(float("nan") if dtype.is_floating_point else 0)
    assert not guard.unwritten(tensor).any()
    assert guard.damage() == []


@pytest.mark.parametrize("name", FILLED)
def test_memory_with_a_content_keeps_it(name):
    like = torch.zeros(4, 3).t()
    with guard_outputs() as guard:
        tensor = FILLED[name](like)

    assert torch.equal(FILLED[name](like), tensor)
    assert FILLED[name](like).stride() == tensor.stride()
    assert guard.is_guarded(tensor)
    assert not guard.unwritten(tensor).any()


def test_the_two_patterns_differ_and_neither_is_made_by_arithmetic():
    words = []
    for pattern in (0, 1):
        with guard_outputs(pattern=pattern):
            words.append([torch.empty(1, dtype=d).view(torch.int16).tolist() for d in FLOATS])
    made = (torch.tensor(0.0) / 0, torch.tensor(float("inf")) - float("inf"), torch.tensor(float("nan")))

    assert all(a != b for a, b in zip(*words, strict=True))
    with guard_outputs() as guard:
        for dtype in FLOATS:
            out = torch.empty(3, dtype=dtype)
            out.copy_(torch.stack(made))
            assert not guard.unwritten(out).any()


@pytest.mark.parametrize(
    ("source", "target"),
    [(torch.float32, torch.bfloat16), (torch.float64, torch.float32), (torch.float32, torch.float16)],
)
def test_poison_converted_to_another_dtype_counts_as_written(source, target):
    with guard_outputs() as guard:
        out = torch.empty(4, dtype=target)
        out.copy_(torch.empty(4, dtype=source))

    assert not guard.unwritten(out).any()


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("distance", [-1, 12, -GUARD_BYTES // 4, 12 + GUARD_BYTES // 4 - 1])
def test_a_write_outside_the_tensor_is_damage(distance, filled):
    with guard_outputs() as guard:
        torch.empty(5)
        tensor = (torch.zeros if filled else torch.empty)(3, 4)
        tensor.fill_(1)
        tensor.as_strided((1,), (1,), tensor.storage_offset() + distance).fill_(0.0)
    (damage,) = guard.damage()

    assert ("alloc 1", "guard", (distance,)) == (damage.tensor, damage.kind, damage.index)
    assert ("before" if distance < 0 else "behind") in damage.message


def test_what_cannot_be_guarded_passes_through():
    with guard_outputs() as guard:
        tensors = [
            torch.empty(0),
            torch.empty(3, dtype=torch.bool),
            torch.empty(3, dtype=torch.uint8),
            torch.empty(3, dtype=torch.complex64),
            torch.empty(3, device="meta"),
            torch.zeros(2).to_sparse(),
            torch.arange(3),
        ]

    assert not any(guard.is_guarded(t) for t in tensors if t.layout == torch.strided and t.device.type != "meta")
    assert all(guard.unwritten(t) is None for t in tensors[:4])


def test_views_of_guarded_memory_are_judged_as_what_they_show():
    with guard_outputs() as guard:
        whole = torch.empty(4, 6)
    whole[0] = 1

    assert guard.unwritten(whole.t()).sum() == 18
    assert guard.unwritten(whole[1:, 2]).all()
    assert guard.unwritten(whole.view(torch.int32)) is None
    assert guard.unwritten(whole + 1) is None


def test_scalars_and_leaves_are_guarded():
    with guard_outputs() as guard:
        scalar = torch.empty((), dtype=torch.float64)
        leaf = torch.empty(2, requires_grad=True)

    assert guard.unwritten(scalar).item()
    assert leaf.is_leaf
    assert leaf.requires_grad
    assert guard.unwritten(leaf).all()


def test_autograd_functions_work_inside():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.empty_like(x)
            out.copy_(x * 2)
            return out

        @staticmethod
        def backward(ctx, g):
            out = torch.empty_like(g)
            out[:-1] = g[:-1] * 2
            return out

    x = torch.ones(3, requires_grad=True)
    with guard_outputs() as guard:
        y = Double.apply(x)
        y.mul_(1.0)
        y.sum().backward()

    assert not guard.unwritten(y).any()
    assert guard.is_guarded(x.grad)
    assert guard.unwritten(x.grad).tolist() == [False, False, True]


@pytest.mark.parametrize("step", ["assignment", "as_strided"])
def test_autograd_reaches_its_own_memory_by_offsets(step):
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    with guard_outputs() as guard:
        if step == "assignment":
            o = torch.empty(2, 3)
            for row in range(2):
                o[row] = x[row] * 3
        else:
            o = (x * 3).as_strided((2, 2), (3, 1), 1)
        (found,) = torch.autograd.grad(o, x, torch.full_like(o, 2.0))

    assert guard.damage() == []
    assert found.tolist() == ([[6, 6, 6]] * 2 if step == "assignment" else [[0, 6, 6]] * 2)


def test_storages_may_be_taken_apart_as_tritons_interpreter_does():
    with guard_outputs() as guard:
        tensor = torch.empty(3, 4)
        again = tensor.new_empty(0).set_(
            tensor.untyped_storage().cpu(), tensor.storage_offset(), tensor.size(), tensor.stride()
        )
    again.fill_(2.0)

    assert not guard.unwritten(tensor).any()
    assert guard.damage() == []


def test_nothing_is_left_behind():
    before = list(_get_current_dispatch_mode_stack())
    with pytest.raises(RuntimeError, match="on purpose"), guard_outputs():
        raise RuntimeError("on purpose")

    assert before == list(_get_current_dispatch_mode_stack())
    with guard_outputs() as guard:
        pass
    assert not guard.is_guarded(torch.empty(3))


def test_guards_nest():
    with guard_outputs(pattern=0) as outer:
        a = torch.empty(3)
        with guard_outputs(pattern=1) as inner:
            b = torch.empty(3)

    assert outer.unwritten(a).all()
    assert inner.unwritten(b).all()


def test_another_pattern_is_refused():
    with pytest.raises(UsageError, match="pattern=2 is not accepted: 0 or 1"), guard_outputs(pattern=2):
        pass
