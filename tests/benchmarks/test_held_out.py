"""Held-out defects can still be planted, and each is told by a name of its own."""

import runpy

from flashverify.mutants.bank import CURATED
from flashverify.mutants.build import changed_text
from tests.benchmarks.conftest import HERE

SETS = HERE.parents[1] / "benchmarks" / "held_out"


def test_every_held_out_defect_changes_one_place(tmp_path):
    defects = [d for file in sorted(SETS.glob("*/*.py")) for d in runpy.run_path(str(file))["DEFECTS"]]
    assert len(defects) >= 733

    for defect in defects:
        if hasattr(defect, "plant"):
            compile((tmp_path / defect.plant(tmp_path).partition(":")[0]).read_text(), defect.name, "exec")
        else:
            compile(changed_text(defect), defect.name, "exec")
        assert defect.modelled_on
    names = [defect.name for defect in (*defects, *CURATED)]
    assert len(set(names)) == len(names)
