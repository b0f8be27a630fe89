"""Speed of subjects side by side in one run: medians, never tests."""

from flashverify.bench.records import Measurement, Workload
from flashverify.bench.run import workloads
from flashverify.bench.session import bench
from flashverify.bench.text import as_json, as_text

__all__ = ["Measurement", "Workload", "as_json", "as_text", "bench", "workloads"]
