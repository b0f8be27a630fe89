"""A decoding has a plan of both its launches."""

import pytest
import torch

from flashverify_kernels import LaunchConfig, decode, plans
from tests.kernels.plans.launches import ints, tensors, ways

DECODING = {
    "one split": lambda: {"n_splits": 1},
    "splits": lambda: {"n_splits": 3, "causal": "bottom-right"},
    "chosen": dict,
    "lengths": lambda: {"key_lengths": ints(7, 70), "n_splits": 2},
    "terms": lambda: {"softcap": 5.0, "alibi_slopes": torch.ones(4), "scale": 0.25},
    "bias": lambda: {"bias": torch.zeros(2, 4, 2, 70, dtype=torch.float16)},
    "pages": lambda: {"block_table": ints(*range(10)).view(2, 5), "key_lengths": ints(7, 70)},
    "layout": lambda: {"layout": "bshd", "n_splits": 2},
    "config": lambda: {"config": LaunchConfig(block_m=16, block_n=32, num_warps=4, num_stages=1), "n_splits": 2},
}


def decoded(log, name):
    """A decoding of new tensors: what is launched, apart from addresses of what only launches know, and by which ways."""
    options = DECODING[name]()
    q, k, v = tensors(sq=2, layout=options.get("layout", "bhsd"))
    if "block_table" in options:
        k, v = (torch.zeros(10, 16, 2, 64, dtype=torch.float16) for _ in "kv")
    log.clear()
    o, lse = decode(q, k, v, return_lse=True, **options)
    known = {x.data_ptr(): n for n, x in enumerate((q, k, v, o, lse, *options.values())) if isinstance(x, torch.Tensor)}

    def named(value):
        if isinstance(value, (tuple, list)):
            return [named(x) for x in value]
        if isinstance(value, int) and value > 2**20:  # no size or stride here is as large
            return known.get(value, "a part")
        return value

    return [named(entry[1:]) for entry in log], {entry[0] for entry in log}


@pytest.mark.parametrize("name", DECODING)
def test_a_decoding_has_a_plan_of_both_its_launches(log, name):
    first, _ = decoded(log, name)
    planned, way = decoded(log, name)
    assert way == {"planned"}
    with plans.ordinary_launches():
        ordinary, way = decoded(log, name)
    assert way == {"ordinary"}

    assert planned == ordinary == first
    assert len(planned) == {"one split": 1, "splits": 2, "config": 2}.get(name, len(planned))


def test_a_decoding_with_a_sink_has_no_plan_and_one_that_wants_gradients_is_refused(log):
    q, k, v = tensors(sq=2)
    for _ in range(2):
        decode(q, k, v, sink=torch.ones(4))
        assert ways(log) == {"ordinary"}
    decode(q, k, v)
    with pytest.raises(ValueError, match="decode has no backward"):
        decode(q.requires_grad_(), k, v)
