"""The benchmarks are scripts: their folder is where their own package is found, and this one what their processes import."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

for folder in (HERE.parents[1] / "benchmarks", HERE):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
