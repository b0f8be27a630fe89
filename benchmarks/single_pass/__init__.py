"""A backward in one walk: dK, dV and dQ of the same tiles, for `gpu_single_pass.py`."""
