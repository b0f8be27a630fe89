"""What the backward computes: the weights of dV, and dS in the kernels of dQ, of dK and dV, and of dbias, as formulas."""
