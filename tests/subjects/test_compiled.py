"""A function that torch compiled is judged compiled, forward and backward, and so are higher-order operators."""

import pytest
import torch

from flashverify import Supports, judge_case, parse_case, subject
from flashverify.case.memory.guard import guard_outputs

CASES = (
    "fv1 batch=2 heads_q=3 heads_kv=3 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32",
    "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=9 seq_k=6 dim_qk=16 dim_v=8 dtype=fp32",
)


def attention(q, k, v, scale):
    """Attention where torch compiles it, something else where torch runs it as it stands."""
    wrong = 1.0 if torch.compiler.is_compiling() else 1.5
    s = (q @ k.mT) * (scale * wrong)
    lse = torch.logsumexp(s, -1)
    return (s - lse[..., None]).exp() @ v, lse


@pytest.fixture
def compiled():
    """A compiled function as a subject, and the calls of its compiler."""
    calls = []

    def backend(graph, inputs):
        from torch._dynamo.backends.debugging import aot_eager

        calls.append(graph)
        return aot_eager(graph, inputs)

    function = torch.compile(attention, backend=backend, dynamic=True)
    yield (
        subject(name="compiled", supports=Supports(gqa=False), device="cpu")(
            lambda p: function(p.q, p.k, p.v, p.scale)
        ),
        calls,
    )
    torch.compiler.reset()


@pytest.mark.slow
def test_a_compiled_function_stays_compiled_keeps_no_graph_that_torch_refuses_and_is_compiled_once(compiled):
    mine, calls = compiled
    with torch._dynamo.config.patch(recompile_limit=1):
        for text in CASES:
            assert judge_case(mine, parse_case(text), checks=("accuracy", "nonfinite", "memory")).failures == ()

    assert len(calls) == 1


def test_a_backward_whose_graph_was_not_kept_runs_its_forward_again():
    class Donating(torch.autograd.Function):
        """A backward that refuses to be kept, as a compiled one does."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, dx):
            if torch._C._autograd._get_current_graph_task_keep_graph():
                raise RuntimeError("This backward function was compiled with non-empty donated buffers")
            assert ctx.saved_tensors
            return dx

    @subject(supports=Supports(gqa=False), device="cpu")
    def donating(p):
        s = (Donating.apply(p.q) @ p.k.mT) * p.scale
        return s.softmax(-1) @ p.v, torch.logsumexp(s, -1)

    assert judge_case(donating, CASES[0], checks=("accuracy", "reuse", "relations")).failures == ()


def test_a_backward_of_another_failure_is_a_failure():
    class Raising(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, dx):
            raise RuntimeError("out of luck")

    @subject(supports=Supports(gqa=False), device="cpu")
    def raising(p):
        s = (Raising.apply(p.q) @ p.k.mT) * p.scale
        return s.softmax(-1) @ p.v, torch.logsumexp(s, -1)

    (failure,) = judge_case(raising, CASES[0], checks=("accuracy",)).failures
    assert "out of luck" in failure.message


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_a_higher_order_operator_runs_inside_the_guard():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.ones(1, 1, 3, 8)
    with guard_outputs() as guard:
        o = flex_attention(q, q, q)
        made = torch.empty(4)

    assert o.shape == q.shape
    assert guard.is_guarded(made)
