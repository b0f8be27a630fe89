"""Right kernels in odd conventions, each with its honest declaration: a check that flags one raises a false alarm."""
