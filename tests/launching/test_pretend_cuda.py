"""Host code that asks for a GPU gets one inside `pretend_cuda`, and none outside."""

import threading

import pytest
import torch
import triton

from flashverify import Contract, Supports, UsageError, judge_case, parse_case, pretend_cuda, subject

CASE = parse_case("fv1 seq_q=5 seq_k=9 dtype=fp32 seed=4")


class OnGpu(torch.autograd.Function):
    """Attention whose forward and backward refuse tensors of the CPU."""

    @staticmethod
    def forward(ctx, q, k, v, scale):
        assert (q.is_cuda, k.device.type, v.is_cpu) == (True, "cuda", False)
        p = (q.double() @ k.double().mT * scale).softmax(-1)
        o = torch.empty(q.shape, dtype=q.dtype, device="cuda")
        with torch.cuda.device(q.device.index):
            o.copy_(p @ v.double())
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, p = (x.double() for x in ctx.saved_tensors)
        assert (do.is_cuda, torch.cuda.get_device_capability()) == (True, (9, 0))
        dp = do.double() @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        dq, dk = torch.zeros(q.shape, device=do.device), torch.zeros(k.shape, device="cuda")
        return dq.copy_(ds @ k), dk.copy_(ds.mT @ q), (p.mT @ do.double()).float(), None


def made(capability=(9, 0)):
    supports = Supports(dtypes=("fp32",), gqa=False, equal_dims=True)
    declare = subject(supports=supports, contract=Contract(lse_base=None), device="cpu", pretend_cuda=capability)
    return declare(lambda p: OnGpu.apply(p.q, p.k, p.v, p.scale))


def test_a_subject_whose_code_insists_on_a_gpu_is_judged():
    result = judge_case(made(), CASE)

    assert {"o", "dq", "dk", "dv"} <= {stats.output for stats in result.stats}
    assert not result.failures


def test_without_it_the_code_refuses():
    assert {v.check for v in judge_case(made(None), CASE).failures} == {"exception"}


def test_tensors_of_the_cpu_say_that_they_are_on_the_gpu():
    x = torch.ones(3)
    with pretend_cuda((9, 0)):
        assert x.is_cuda
        assert x.get_device() == 0
        assert x.device == torch.empty(2, device="cuda").device == torch.device("cuda", 0)
        assert x.to("cuda") is x.cuda() is x.to(device="cuda:0") is x.pin_memory() is x
        assert x.to("cuda", torch.float16).dtype is torch.float16
        assert x.cpu() is not x
        assert x.to("cpu").data_ptr() != x.data_ptr()
        assert torch.zeros(2, device=x.device, pin_memory=True).new_full((2,), 3, device="cuda").tolist() == [3, 3]
        assert not torch.empty(2, device="meta").is_cuda
    assert not x.is_cuda
    assert x.device.type == "cpu"


def test_torch_cuda_answers_for_the_capability():
    release = torch.version.cuda
    with pretend_cuda((8, 0)):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability("cuda") == (8, 0)
        assert torch.cuda.get_device_properties(0).multi_processor_count == 108
        assert (torch.cuda.current_device(), torch.cuda.device_count()) == (0, 1)
        assert torch.cuda.current_stream().cuda_stream == 0
        assert torch.version.cuda
        torch.cuda.synchronize()
    assert not torch.cuda.is_available()
    assert torch.version.cuda == release


def test_the_driver_of_triton_answers_for_the_capability():
    with pretend_cuda((9, 0)):
        active = triton.runtime.driver.active
        assert active.get_current_target() == triton.backends.compiler.GPUTarget("cuda", 90, 32)
        assert active.get_active_torch_device() == torch.device("cuda", 0)
        assert active.utils.get_device_properties(0)["max_shared_mem"] == 232448
    with pytest.raises(RuntimeError, match="0 active drivers"):
        triton.runtime.driver.active.get_current_target()


def test_everything_is_put_back_after_an_error():
    before = torch.cuda.device, torch.cuda.is_available, torch.autograd._engine_run_backward
    with pytest.raises(ZeroDivisionError), pretend_cuda((9, 0)), pretend_cuda((8, 0)):
        _ = 1 / (torch.cuda.get_device_capability() != (8, 0))
    assert before == (torch.cuda.device, torch.cuda.is_available, torch.autograd._engine_run_backward)
    assert torch.overrides._get_current_function_mode() is None


def test_another_thread_is_told_nothing():
    found = []
    with pretend_cuda((9, 0)):
        thread = threading.Thread(target=lambda: found.extend([torch.cuda.is_available(), torch.ones(1).is_cuda]))
        thread.start()
        thread.join()
    assert found == [False, False]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch.cuda.Event(enable_timing=True), r"torch.cuda.Event is not accepted inside pretend_cuda"),
        (lambda: torch.ones(1).to("cuda:1"), "device='cuda:1' is not accepted inside pretend_cuda: there is one GPU"),
        (lambda: triton.runtime.driver.active.get_benchmarker(), "timing a kernel is not accepted"),
    ],
)
def test_what_a_pretended_gpu_cannot_do_is_refused(call, message):
    with pretend_cuda((9, 0)), pytest.raises(UsageError, match=message):
        call()


def test_an_unknown_capability_is_refused():
    with (
        pytest.raises(UsageError, match=r"capability=\(9, 5\) is not accepted: one of \(7, 5\), "),
        pretend_cuda((9, 5)),
    ):
        pass
    with pytest.raises(UsageError, match=r"pretend_cuda='h100' is not accepted"):
        made("h100")
