"""Quantised K and V: codes of 8 or 4 bits with scales, in place of values in the dtype of q."""
