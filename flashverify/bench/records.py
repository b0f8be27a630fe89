"""What is timed, and what came out."""

from __future__ import annotations

import msgspec

__all__ = ["PASSES", "KernelCounters", "Measurement", "Workload"]

PASSES = ("forward", "backward")


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One problem and one pass.

    Args:
        batch: sequences.
        heads_q: query heads.
        heads_kv: kv heads.
        seq_q: queries per sequence.
        seq_k: keys per sequence.
        dim: head dimension of q, k and v.
        dtype: `fp16`, `bf16` or `fp32`.
        causal: whether row i sees key j only if j <= i + seq_k - seq_q.
        direction: `forward` or `backward`; the backward alone, from a forward that was made before.
    """

    batch: int
    heads_q: int
    heads_kv: int
    seq_q: int
    seq_k: int
    dim: int
    dtype: str
    causal: bool
    direction: str

    @property
    def operations(self) -> float:
        """Floating-point operations of the visible pairs: 4 d a pair forward, 10 d backward (the product of q and k again)."""
        if not self.causal:
            pairs = self.seq_q * self.seq_k
        else:
            shift = self.seq_k - self.seq_q
            pairs = sum(min(max(i + 1 + shift, 0), self.seq_k) for i in range(self.seq_q))
        return float(self.batch * self.heads_q * pairs * self.dim * (4 if self.direction == "forward" else 10))

    @property
    def bytes(self) -> float:
        """Bytes of K and V, each read once: what bounds a pass with few queries."""
        size = 4 if self.dtype == "fp32" else 2
        return float(2 * self.batch * self.heads_kv * self.seq_k * self.dim * size)

    @property
    def traffic(self) -> float:
        """Bytes that a pass has to move: each of Q, K, V, O, LSE (fp32) and their gradients that it reads or writes, once."""
        size = 4 if self.dtype == "fp32" else 2
        rows = self.batch * self.heads_q * self.seq_q
        passes = 1 if self.direction == "forward" else 2
        return float(passes * (self.bytes + 2 * rows * self.dim * size) + 4 * rows)

    def __str__(self) -> str:
        heads = f"{self.heads_q}" if self.heads_q == self.heads_kv else f"{self.heads_q}:{self.heads_kv}"
        length = f"{self.seq_k}" if self.seq_q == self.seq_k else f"{self.seq_q}x{self.seq_k}"
        mask = "causal" if self.causal else "full"
        return f"{self.direction} {self.dtype} B={self.batch} H={heads} N={length} D={self.dim} {mask}"


class KernelCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What the units of a GPU did during one kernel, as Nsight Compute reads it.

    Args:
        name: of the kernel.
        microseconds: it took, alone on the GPU.
        programs: of the launch, as CUDA's blocks.
        threads: of a program.
        registers: of a thread.
        shared_bytes: shared memory of a program.
        spills: requests to local memory for want of registers.
        warps: that a multiprocessor had on average.
        units: share of what each unit could do in that time, 0 to 1.
        stalls: share of the cycles of all warps that each state took; `selected` issued an instruction.
    """

    name: str
    microseconds: float
    programs: int
    threads: int
    registers: int
    shared_bytes: int
    spills: int
    warps: float
    units: dict[str, float]
    stalls: dict[str, float]


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one subject on one workload.

    Args:
        workload: what was timed.
        subject: its name, or one of `flashverify.bench.limits.LIMITS`.
        milliseconds: one time per round.
        reason: why there is none.
        operations: of one call; 0 where they are those of the workload.
        kernels: what its kernels asked of the GPU, where counters were read.
    """

    workload: Workload
    subject: str
    milliseconds: tuple[float, ...] = ()
    reason: str = ""
    operations: float = 0.0
    kernels: tuple[KernelCounters, ...] = ()

    @property
    def median(self) -> float:
        """Median time, ms; NaN where there is none."""
        ordered = sorted(self.milliseconds)
        middle = len(ordered) // 2
        if not ordered:
            return float("nan")
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    @property
    def tflops(self) -> float:
        """TFLOP/s at the median time: of the visible pairs, or of the operations that are given."""
        return (self.operations or self.workload.operations) / self.median / 1e9

    @property
    def bandwidth(self) -> float:
        """GB/s of K and V at the median time."""
        return self.workload.bytes / self.median / 1e6
