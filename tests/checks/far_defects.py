"""Offsets in 32 bits, planted one by one in the kernels of `far_kernels.py` and of an example."""

from pathlib import Path

from flashverify import parse_case

DENSE = parse_case("fv1 batch=3 heads_q=3 heads_kv=3 seq_q=4 seq_k=4 dim_qk=16 dim_v=16 dtype=fp32")
FORWARD = parse_case(f"{DENSE} backward=no")
PAIR = parse_case("fv1 batch=2 heads_q=2 heads_kv=2 seq_q=4 seq_k=4 dim_qk=16 dim_v=16 dtype=fp32 backward=no")
PACKED = parse_case(
    "fv1 heads_q=2 heads_kv=2 seq_q=9 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 packed=0,2,5,9/0,2,5,9 backward=no"
)
PAGED = parse_case("fv1 batch=3 seq_k=40 dim_qk=16 dim_v=16 dtype=fp32 klen=40,7,33 page_size=16 backward=no")
KERNELS = Path(__file__).parent / "far_kernels.py"
DECODE = KERNELS.parents[2] / "examples/paged_decode.py"
DEFECTS = {
    "batch stride": ("batch", FORWARD, "q_at = b * q_batch", "q_at = tl.program_id(0) * q_batch"),
    "head stride": ("head", FORWARD, "v_batch + h // group * v_head + first_k", "v_batch + tl.program_id(1) // group * v_head + first_k"),
    "row stride": ("row", FORWARD, "i[:, None] * q_row + d[None, :], mask=here", "i.to(tl.int32)[:, None] * q_row + d[None, :], mask=here"),
    "key stride": ("row", FORWARD, "v_at + j.to(tl.int64)[:, None] * v_row", "v_at + j[:, None] * v_row"),
    "cast after the product": ("batch", FORWARD, "k_at = b * k_batch", "k_at = (tl.program_id(0) * k_batch).to(tl.int64)"),
    "whole offset in 32 bits": ("all", FORWARD, "q_at = b * q_batch + h * q_head + first_q * q_row",
                                "q_at = (b * q_batch + h * q_head + first_q * q_row).to(tl.int32)"),
    "sum of offsets that fit": ("all", PAIR, "q_at = b * q_batch + h * q_head + first_q * q_row",
                                "q_at = tl.program_id(0) * q_batch + tl.program_id(1) * q_head + first_q.to(tl.int32) * q_row"),
    "stride of O": ("head", FORWARD, "+ h * o_head + first_q", "+ tl.program_id(1) * o_head + first_q"),
    "offset of LSE": ("batch", FORWARD, "lse_ptr + b * lse_batch + h * lse_head + first_q",
                      "lse_ptr + tl.program_id(0) * lse_batch + h * lse_head + first_q"),
    "offset of delta": ("batch", DENSE, "delta_ptr + b * delta_batch + h * delta_head + i, tl",
                        "delta_ptr + tl.program_id(0) * delta_batch + h * delta_head + i, tl"),
    "sums of dK": ("batch", DENSE, "dk_at, dv_at = b * dk_batch", "dk_at, dv_at = tl.program_id(0) * dk_batch"),
    "scratch of dQ": ("row", DENSE, "+ i[:, None] * scratch_row", "+ i.to(tl.int32)[:, None] * scratch_row"),
    "stride of dO": ("row", DENSE, "i[:, None] * do_row + dv[None, :] * do_channel, mask=wide_v",
                     "i.to(tl.int32)[:, None] * do_row + dv[None, :] * do_channel, mask=wide_v"),
}  # fmt: skip
OF_ALLOCATIONS = ("stride of O", "offset of LSE", "offset of delta", "sums of dK", "scratch of dQ")
"""Defects in offsets into what the subject allocates."""
TOKENS = (
    "first_k = tl.load(cu_q_ptr + b).to(tl.int64), tl.load(cu_k_ptr + b).to(tl.int64)",
    "first_k = tl.load(cu_q_ptr + b).to(tl.int64), tl.load(cu_k_ptr + b)",
)
PAGE = ("mask=here, other=0).to(tl.int64)", "mask=here, other=0)")


def written(folder, before, after, source=KERNELS, name="attend"):
    """Writes the kernels with one text replaced; returns what loads the subject."""
    text = source.read_text()
    assert text.count(before) == 1
    path = folder / "planted.py"
    path.write_text(text.replace(before, after))
    return f"{path}:{name}"
