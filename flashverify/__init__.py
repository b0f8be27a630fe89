"""flashverify: numerical verification and fuzzing of attention kernels against sound per-element bounds.

A public name is imported when it is first used, so that `import flashverify` and the commands that need no torch start without it.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:  # what type checkers read; tests/api/test_public_names.py holds it equal to the table below
    from flashverify.api.assertion import assert_attention_close as assert_attention_close
    from flashverify.api.drawing import cases as cases
    from flashverify.api.drawing import standard_cases as standard_cases
    from flashverify.api.float64 import OracleResult as OracleResult
    from flashverify.api.float64 import oracle as oracle
    from flashverify.api.interpreting import corrected_interpreter as corrected_interpreter
    from flashverify.api.judging import count_masks as count_masks
    from flashverify.api.judging import judge_case as judge_case
    from flashverify.api.options import AttentionOptions as AttentionOptions
    from flashverify.case.case import Case as Case
    from flashverify.case.case import Edit as Edit
    from flashverify.case.case import Grad as Grad
    from flashverify.case.case import Logits as Logits
    from flashverify.case.case import Storage as Storage
    from flashverify.case.case import Values as Values
    from flashverify.case.masks.mask import Bitmap as Bitmap
    from flashverify.case.masks.mask import Blocks as Blocks
    from flashverify.case.masks.mask import Mask as Mask
    from flashverify.case.masks.mask import Packed as Packed
    from flashverify.case.masks.mask import Selection as Selection
    from flashverify.case.problem import Problem as Problem
    from flashverify.case.selections import Selections as Selections
    from flashverify.case.text import parse_case as parse_case
    from flashverify.errors import CaseTextError as CaseTextError
    from flashverify.errors import ConfigError as ConfigError
    from flashverify.errors import FlashverifyError as FlashverifyError
    from flashverify.errors import NoVerdictError as NoVerdictError
    from flashverify.errors import SelfCheckError as SelfCheckError
    from flashverify.errors import StoreError as StoreError
    from flashverify.errors import SubjectLoadError as SubjectLoadError
    from flashverify.errors import UnsupportedCaseError as UnsupportedCaseError
    from flashverify.errors import UsageError as UsageError
    from flashverify.judge.verdict import CaseResult as CaseResult
    from flashverify.judge.verdict import OutputStats as OutputStats
    from flashverify.judge.verdict import Status as Status
    from flashverify.judge.verdict import Verdict as Verdict
    from flashverify.launching.pretend import pretend_cuda as pretend_cuda
    from flashverify.numerics.form import Form as Form
    from flashverify.subjects.function import subject as subject
    from flashverify.subjects.interface import Contract as Contract
    from flashverify.subjects.interface import Forward as Forward
    from flashverify.subjects.interface import Gradients as Gradients
    from flashverify.subjects.interface import Subject as Subject
    from flashverify.subjects.interface import Supports as Supports
    from flashverify.subjects.kernel import kernel_subject as kernel_subject
    from flashverify.subjects.registry import load_subject as load_subject

    __version__: str

_NAMES = {
    "api.assertion": "assert_attention_close",
    "api.drawing": "cases standard_cases",
    "api.float64": "OracleResult oracle",
    "api.interpreting": "corrected_interpreter",
    "api.judging": "count_masks judge_case",
    "api.options": "AttentionOptions",
    "case.case": "Case Edit Grad Logits Storage Values",
    "case.masks.mask": "Bitmap Blocks Mask Packed Selection",
    "case.problem": "Problem",
    "case.selections": "Selections",
    "case.text": "parse_case",
    "errors": "CaseTextError ConfigError FlashverifyError NoVerdictError SelfCheckError StoreError SubjectLoadError "
    "UnsupportedCaseError UsageError",
    "judge.verdict": "CaseResult OutputStats Status Verdict",
    "launching.pretend": "pretend_cuda",
    "numerics.form": "Form",
    "subjects.function": "subject",
    "subjects.interface": "Contract Forward Gradients Subject Supports",
    "subjects.kernel": "kernel_subject",
    "subjects.registry": "load_subject",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


if not _TYPE_CHECKING:  # a type checker would take it to mean that every name exists

    def __getattr__(name: str) -> object:
        """The object of a public name, and the installed version."""
        if name == "__version__":
            from importlib.metadata import version

            return version("flashverify")
        if name not in _HOMES:
            raise AttributeError(f"module 'flashverify' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, the version, and what every module has."""
    return sorted([*__all__, "__version__", *(name for name in globals() if name.startswith("__"))])
