"""Small workloads and measurements of them."""

from flashverify.bench import Measurement, Workload
from flashverify.bench.limits import COPY, MATRIX

SMALL = Workload(
    batch=2, heads_q=4, heads_kv=2, seq_q=3, seq_k=5, dim=16, dtype="fp32", causal=False, direction="forward"
)


def changed(**fields):
    return Workload(**{name: getattr(SMALL, name) for name in SMALL.__struct_fields__} | fields)


def measurement(*milliseconds, subject="a", workload=SMALL, reason=""):
    return Measurement(workload=workload, subject=subject, milliseconds=milliseconds, reason=reason)


def limited(*, product, copy, workload=SMALL):
    """Measurements of the limits: milliseconds of a product of 1e9 operations, and of a copy of the workload's K and V."""
    return {
        MATRIX: Measurement(workload=workload, milliseconds=(product,), subject=MATRIX, operations=1e9),
        COPY: measurement(copy, subject=COPY, workload=workload),
    }
