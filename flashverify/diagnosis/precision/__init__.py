"""Failures of precision in words: which step of a kernel is rounded, and under which form its outputs would be within bounds."""

from flashverify.diagnosis.precision.words import precision_words

__all__ = ["precision_words"]
