"""Bad arguments have the errors beside plans of good ones that they have without a plan."""

import contextlib

import pytest
import torch

from flashverify_kernels import Configs, LaunchConfig, Options, attention, decode, forward, plans
from tests.kernels.plans.launches import tensors, ways


@pytest.mark.parametrize(
    "options",
    [
        {"scale": True},
        {"scale": "1"},
        {"causal": ["top-left"]},
        {"window": (1.0, 1)},
        {"window": [1, True]},
        {"softcap": -1.0},
        {"precision": None},
        {"layout": None},
        {"config": LaunchConfig(block_m=16, block_n=32)},
        {"config": Configs(forward=Configs())},
        {"config": Configs(forward=LaunchConfig(block_m=[16], block_n=32))},
        {"bias": 1.0},
        {"key_lengths": [1, 1]},
        {"packed": 1},
        {"blocks": 1},
    ],
)
def test_bad_options_have_their_errors_beside_plans_of_good_ones(log, options):
    forward(*tensors(), Options(scale=1.0))
    forward(*tensors(), Options(window=(1, 1)))
    with plans.ordinary_launches(), pytest.raises((TypeError, ValueError)) as expected:
        forward(*tensors(), Options(**options))
    with pytest.raises(expected.type) as found:
        forward(*tensors(), Options(**options))

    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("change", [{"num_warps": 4.0}, {"descriptors": 1}, {"num_stages": True}])
def test_a_configuration_with_an_equal_value_of_another_type_has_no_plan_of_the_first(log, change):
    config = {"block_m": 16, "block_n": 32, "num_warps": 4, "num_stages": 1, "descriptors": True}
    for _ in range(2):
        forward(*tensors(), Options(config=Configs(forward=LaunchConfig(**config))))
    assert "planned" in ways(log)
    with contextlib.suppress(TypeError, ValueError):
        forward(*tensors(), Options(config=Configs(forward=LaunchConfig(**config | change))))

    assert "planned" not in ways(log)


@pytest.mark.parametrize("change", [torch.Tensor.to_sparse, lambda x: x.to("meta"), torch.Tensor.tolist])
@pytest.mark.parametrize("number", range(3))
def test_a_tensor_without_strides_or_address_and_none_at_all_have_their_errors_beside_plans(log, change, number):
    forward(*tensors())
    given = list(tensors())
    given[number] = change(given[number])
    with plans.ordinary_launches(), pytest.raises((TypeError, ValueError, RuntimeError)) as expected:
        forward(*given)
    with pytest.raises(expected.type) as found:
        forward(*given)

    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("more", [{"bogus": 1}, {"dlse": None}, {"options": Options()}])
def test_a_call_with_unknown_arguments_is_refused(log, more):
    forward(*tensors(), Options())
    with pytest.raises(TypeError):
        forward(*tensors(), Options(), **more)


@pytest.mark.parametrize("function", [decode, attention])
def test_slopes_that_want_a_gradient_are_refused_where_slopes_have_a_plan(log, function):
    q, k, v = tensors(sq=2)
    for _ in range(2):
        function(q, k, v, alibi_slopes=torch.ones(4))
    assert "planned" in ways(log)
    with pytest.raises(ValueError, match="slopes have no gradient"):
        function(q, k, v, alibi_slopes=torch.ones(4).requires_grad_())
