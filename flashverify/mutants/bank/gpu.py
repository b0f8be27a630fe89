"""Defects that only compiled code on a GPU shows: untrue hints, missing order between streams, contraction; and controls of the same kind."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["GPU", "GPU_CONTROLS"]

_DEVICE = "with torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext():\n"
_ASIDE = "with torch.cuda.stream(torch.cuda.Stream(q.device)) if q.is_cuda else contextlib.nullcontext():\n"
_BUSY = "if q.is_cuda:\n{0}    torch.cuda._sleep(4_000_000)\n{0}"  # some milliseconds: the device has other work
_ZEROS = "ds = torch.zeros(*rows, call.sk, dtype=torch.float32, device=q.device)  # tiles never visited stay 0\n"
_LAUNCH = "            launched(kernel, programs, **arguments)"
_DECODE = "        launched(\n            decode_kernel,\n"

GPU = (
    Mutant(
        name="alignment_of_pointers_taken_for_granted",
        file="arguments.py",
        before="x.data_ptr() % 16 == 0\n        and all(",
        after="all(",
        outputs=(),
        modelled_on="Dao-AILab/flash-attention 215930bc: wide loads from addresses that are not aligned",
        gpu=True,
    ),
    Mutant(
        name="alignment_of_rows_taken_for_granted",
        file="arguments.py",
        before="all(stride % 8 == 0 for stride in x.stride()[:-1])",
        after="all(stride >= 0 for stride in x.stride()[:-1])",
        outputs=(),
        modelled_on="ROCm/pytorch#3230: the distance of two rows said to be a multiple of 8 elements",
        gpu=True,
    ),
    Mutant(
        name="alignment_of_the_cache_taken_for_granted",
        file="decode.py",
        before="aligned=aligned(q, k, v, parts),",
        after="aligned=aligned(parts),",
        outputs=(),
        modelled_on="pytorch/pytorch#112577: alignment asked of what was allocated here, not of what was given",
        subject="bundled-decode",
        gpu=True,
    ),
    Mutant(
        name="do_said_to_be_as_aligned_as_o",
        file="launch.py",
        before='shared = constants(call, "dq", tensors)',
        after='shared = constants(call, "dq", in_order(options, o=o))',
        outputs=(),
        modelled_on="Dao-AILab/flash-attention#355: the backward takes dO for a tensor like O",
        needs=("backward",),
        gpu=True,
    ),
    Mutant(
        name="alignment_remembered_by_head_dim",
        file="arguments.py",
        before="aligned=rows_aligned(tensors),",
        after="aligned=vars(constants).setdefault((kind, call.d, call.dv), rows_aligned(tensors)),",
        outputs=(),
        modelled_on="pytorch/pytorch#159247: a launcher kept under a key without strides and reused for others",
        gpu=True,
    ),
    Mutant(
        name="launched_beside_the_stream",
        file="launch.py",
        before=_DEVICE + _LAUNCH,
        after=_ASIDE + " " * 12 + _BUSY.format(" " * 12) + "kernel[(programs,)](**arguments)",
        outputs=(),
        modelled_on="pytorch/pytorch#197563: a kernel on another stream than its readers; nobody waits for it",
        gpu=True,
    ),
    Mutant(
        name="merged_before_the_splits_are_done",
        file="decode.py",
        before=_DEVICE + _DECODE,
        after=_ASIDE + " " * 8 + _BUSY.format(" " * 8) + _DECODE.lstrip(),
        outputs=(),
        modelled_on="NVIDIA/TensorRT-LLM#13081: the second phase does not wait for the first",
        subject="bundled-decode",
        gpu=True,
    ),
    Mutant(
        name="zeroed_after_it_was_written",
        file="launch.py",
        before=_ZEROS,
        after=_ASIDE + " " * 12 + _BUSY.format(" " * 12) + _ZEROS,
        outputs=(),
        modelled_on="pytorch/pytorch#197563: a buffer is filled on another stream than the kernel that writes to it",
        needs=("bias", "backward"),
        gpu=True,
    ),
    Mutant(
        name="contraction_in_the_forward",
        file="launch.py",
        before="enable_fp_fusion=False,",
        after="enable_fp_fusion=True,",
        outputs=(),
        modelled_on="flashinfer-ai/flashinfer#4401: S * c - m contracted; the weight of the maximum is not 1 and overflows",
        gpu=True,
    ),
    Mutant(
        name="contraction_in_decoding",
        file="decode_config.py",
        before='"enable_fp_fusion": False,',
        after='"enable_fp_fusion": True,',
        outputs=(),
        modelled_on="flashinfer-ai/flashinfer#4401: S * c - m contracted; the weight of the maximum is not 1 and overflows",
        subject="bundled-decode",
        gpu=True,
    ),
)
"""Not found by an interpreter, which computes as the source says and runs one program after the other."""

GPU_CONTROLS = (
    Mutant(
        name="contraction_in_the_merge",
        file="merge.py",
        before='"enable_fp_fusion": False,',
        after='"enable_fp_fusion": True,',
        outputs=(),
        modelled_on="Dao-AILab/flash-attention 68865c61: one rounding fewer where a weighted partial is added",
        subject="bundled-decode",
        gpu=True,
        control=True,
    ),
    Mutant(
        name="launched_beside_the_stream_in_order",
        file="launch.py",
        before=_DEVICE + _LAUNCH,
        after=_DEVICE
        + "            if q.is_cuda:\n"
        + "                side, here = torch.cuda.Stream(q.device), torch.cuda.current_stream(q.device)\n"
        + "                side.wait_stream(here)\n"
        + "                with torch.cuda.stream(side):\n"
        + "                    kernel[(programs,)](**arguments)\n"
        + "                here.wait_stream(side)\n"
        + "            else:\n"
        + "                kernel[(programs,)](**arguments)",
        outputs=(),
        modelled_on="pytorch/pytorch#197563: another stream that waits and is waited for",
        gpu=True,
        control=True,
    ),
)
