"""The questions asked of (subject, case), one file each, and the engine that asks them."""

from flashverify.checks.engine import judge_case
from flashverify.checks.plan import Plan
from flashverify.checks.registry import CHECK_SPECS, CHECKS

__all__ = ["CHECKS", "CHECK_SPECS", "Plan", "judge_case"]
