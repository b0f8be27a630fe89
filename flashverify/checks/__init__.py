"""The questions asked of (subject, case), one file each, and the engine that asks them."""

from flashverify.checks.engine import judge_case
from flashverify.checks.plan import CHECKS, VARIANTS, Plan

__all__ = ["CHECKS", "VARIANTS", "Plan", "judge_case"]
