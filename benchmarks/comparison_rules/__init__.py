"""The comparison rules of other test suites and ours, on the same outputs of the same kernels.

`rules` decides, `references` computes what the rules compare with, `values` and `inputs` draw the problems as each suite
draws its own, `judging` puts one execution of a kernel to all rules, `work` does that for a list of cases in a process of its
own, `scheduler` runs such processes, `tables` writes the matrix.
"""
