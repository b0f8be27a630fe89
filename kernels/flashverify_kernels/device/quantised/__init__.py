"""Attention over K and V that are given as codes with scales, see `codes` and `attention`."""
