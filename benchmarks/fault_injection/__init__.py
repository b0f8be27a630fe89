"""Faults put into short campaigns: disks that refuse, tear, delay or forget, and processes that are killed.

Everything runs in processes that are forked from one that has imported what they need, so that a command takes a fraction of a second.
The command line, the supervisor, the workers, the protocol and the files are those of flashverify; the kernels are toys.
"""
