"""Kernels for Hopper GPUs in Gluon: one warp fetches tiles by descriptors, two groups of four warps compute.

They compute what the kernels of `device` compute, operation by operation and in the same order: `benchmarks/gpu_paths.py` asks a
GPU whether the bits are the same under the same tile of keys. The host's `hopper` says which calls they take; every other call goes
to those kernels.
"""
