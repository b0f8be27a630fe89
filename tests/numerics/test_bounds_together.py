"""Outputs and modes that are bounded in the operations of one: the very bits of each by itself."""

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from flashverify.formats import FORMATS
from flashverify.numerics import Form, OutputBound, backward, together
from flashverify.numerics.result import finish
from flashverify.numerics.together import bounds_of_each
from flashverify.truth import Inputs, Truth

FIELDS = ("bound", "self_error", "may_overflow", "may_flip", "must_overflow", "uninformative")
SHAPES = ((2, 3, 5, 8), (2, 1, 7, 4), (1, 3, 5, 1))


def same_bits(one: OutputBound, other: OutputBound) -> bool:
    def equal(name: str) -> bool:
        a, b = (getattr(x, name) for x in (one, other))
        return a.shape == b.shape and torch.equal(a, b)

    return all(equal(name) for name in FIELDS)


def unfinished(shape: tuple[int, ...], seed: int, *, far: float) -> tuple[Tensor, ...]:
    """What `finish` takes: elements near the end of fp16's range for `far` 1, some exact and some exempt in rows."""
    draw = torch.Generator().manual_seed(seed)
    real = functools.partial(torch.rand, generator=draw, dtype=torch.float64)
    y = (real(shape) - 0.5) * (far * 150_000 + 1)
    errors = (real(shape) * (far * 1e4 + 1e-3) for _ in range(2))
    rows = (*shape[:-1], 1)
    exact, exempt = (torch.rand(rows, generator=draw) < share for share in (0.2, 0.1))
    return y, *errors, real(shape) * 1e-3, exact, exempt, y.abs() + real(shape)


def finished(y: Tensor, before: Tensor, bound: Tensor, own: Tensor, *rest: Tensor) -> OutputBound:
    exact, exempt, trivial = rest
    return finish(y, before, bound, own, exact=exact, exempt=exempt, trivial=trivial, out=FORMATS["fp16"])


@pytest.mark.parametrize("far", [0.0, 1.0])
def test_outputs_of_other_shapes_are_finished_as_one(far: float) -> None:
    outputs = [unfinished(shape, seed, far=far) for seed, shape in enumerate(SHAPES)]
    found = bounds_of_each(finished, outputs)
    assert len(found.made) == 1
    for bound, given in zip(found.each, outputs, strict=True):
        assert same_bits(bound, finished(*given))


def test_outputs_of_many_elements_are_finished_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = [unfinished(shape, seed, far=0.0) for seed, shape in enumerate(SHAPES)]
    monkeypatch.setattr(together, "_MOST_ON_CPU", sum(y.numel() for y, *_ in outputs) - 1)
    found = bounds_of_each(finished, outputs)
    assert found.made == found.each
    assert all(same_bits(bound, finished(*given)) for bound, given in zip(found.each, outputs, strict=True))


def inputs(dtype: torch.dtype, *, features: bool) -> Inputs:
    """A row without a key, a key that no row sees, and elements that hardware may flush."""
    draw = torch.Generator().manual_seed(11)

    def values(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw).to(dtype)

    visible = torch.ones(6, 9, dtype=torch.bool).tril(1)
    visible[2], visible[:, 4] = False, False
    v = values(2, 2, 9, 8)
    v[0, 0, :, 3] = 0.0
    v[1] *= 2.0**-126
    more = {
        "biases": (values(2, 4, 6, 9),),
        "bias_shape": (1, 4, 6, 9),
        "relative_buckets": torch.arange(9).expand(1, 1, 6, 9) % 3,
        "bucket_count": 3,
        "sink": values(4).float(),
        "softcap": 2.0,
        "keep": torch.rand(2, 4, 6, 9, generator=draw) < 0.7,
        "dropout": 0.3,
    }
    return Inputs(
        q=values(2, 4, 6, 8), k=values(2, 2, 9, 8), v=v, scale=0.3, visible=visible, do=values(2, 4, 6, 8), dlse=values(2, 4, 6).float(),
        **(more if features else {}),
    )  # fmt: skip


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize(
    "form",
    [
        Form(),
        Form(delta_from="o_fp32", stored_delta="minus_dlse", masked_ds=True),
        Form(delta_from="o", p_from="forward"),
        Form(delta_from="p"),
    ],
    ids=["plain", "fp32 O", "kept weights", "summed weights"],
)
def test_both_modes_side_by_side_have_the_bits_of_each_by_itself(
    form: Form, features: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = inputs(torch.bfloat16, features=features)
    truth, alone = (Truth(given, "bf16", form) for _ in range(2))
    o, lse = truth.exact_o.bfloat16(), truth.exact_lse.float()
    lse[0, 1, 4] = torch.inf
    pairs, (conditional, strict) = truth.in_both_modes(o, lse)
    monkeypatch.setattr(backward, "_PAIRS_ON_CPU", 0)
    monkeypatch.setattr(together, "_MOST_ON_CPU", 0)
    for found, expected in ((pairs, alone.backward()), *zip((conditional, strict), alone.given(o, lse), strict=True)):
        assert found.keys() == expected.keys()
        for name, (value, bound) in found.items():
            assert torch.equal(value.nan_to_num(), expected[name][0].nan_to_num()), name
            assert same_bits(bound, expected[name][1]), name
    assert truth.given(o, lse)[0] is conditional


@pytest.mark.parametrize("other", [lambda t: t.read_as(Form(delta_from="p")), Truth.directed], ids=["reading", "part"])
def test_the_gradients_that_a_truth_keeps_are_none_of_another_reading_or_part(other: Callable[[Truth], Truth]) -> None:
    given = inputs(torch.bfloat16, features=False)
    truth, fresh = (Truth(given, "bf16", Form()) for _ in range(2))
    kept, _ = truth.in_both_modes(truth.exact_o.bfloat16(), truth.exact_lse.float())
    assert truth.backward() is kept

    found, expected = other(truth).backward(), other(fresh).backward()
    assert all(same_bits(found[name][1], expected[name][1]) for name in expected)
    assert not all(same_bits(found[name][1], kept[name][1]) for name in expected)


def test_modes_are_side_by_side_only_where_their_pairs_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    of = backward.ModeTerms.of
    monkeypatch.setattr(
        backward.ModeTerms, "of", lambda *args, **kwargs: counts.append(len(args[3])) or of(*args, **kwargs)
    )
    given = inputs(torch.float16, features=False)
    for most, expected in ((2 * 2 * 4 * 6 * 9, [2]), (2 * 2 * 4 * 6 * 9 - 1, [1, 1])):
        counts.clear()
        monkeypatch.setattr(backward, "_PAIRS_ON_CPU", most)
        truth = Truth(given, "fp16", Form())
        truth.in_both_modes(truth.exact_o.half(), truth.exact_lse.float())
        assert counts == expected
