"""Kernels launched as their files have them: configurations of an autotuned kernel, and a GPU that is pretended."""
