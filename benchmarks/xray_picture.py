"""Draws the picture of docs/xray.md: the masks that a kernel with the defect of Triton's tutorial 06 has in effect.

    TRITON_INTERPRET=1 python benchmarks/xray_picture.py [--out docs/images/xray_leak.png]

The defect is planted in the bundled kernels: their full tiles end at a multiple of the rows per tile, 64, which is none of the keys per
tile, 128. No GPU is needed; the file is the same, byte for byte, with the same matplotlib.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

CASE = "fv1 seq_q=256 seq_k=256 dim_qk=64 dim_v=64 causal=top-left launch=block_m:64,block_n:128"


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    from flashverify.case.memory.materialize import materialize
    from flashverify.case.text import parse_case
    from flashverify.interpreter import faithful
    from flashverify.mutants.bank.diagonal_leak import DIAGONAL_LEAK
    from flashverify.mutants.build import build_mutant
    from flashverify.subjects import load_subject
    from flashverify.xray.difference import record_of
    from flashverify.xray.measure import measure
    from flashverify.xray.picture import LEAK_PICTURE, draw
    from flashverify.xray.record import record_text

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / LEAK_PICTURE, help="the PNG")
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder, faithful():
        sys.path.insert(0, folder)
        subject = load_subject(build_mutant(DIAGONAL_LEAK, Path(folder)))
        found = measure(subject, materialize(parse_case(CASE))[0])
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(found, out)
    print(record_text(record_of(found)))
    print(f"picture: {out}")


if __name__ == "__main__":
    main()
